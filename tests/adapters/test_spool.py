"""A spool shared by processes that are killed, forked and short of disk."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from angzarr.adapters.files.spool import UNLOOKED_SHARE, FolderOfLetters, Spool
from angzarr.adapters.files.whole_files import FolderLock
from angzarr.dead_letters.spool_forwarder import Aside, Forwarder
from contracts.dead_letters import a_letter
from polling import wait_until
from unit.dead_letters.letterboxes import Target

TESTS = Path(__file__).parents[1]
#: Bytes that make a letter take several writes' time.
FILLER = "x" * 20_000

#: Puts letters in batches until it is killed, and says which batch was confirmed.
WRITER = """
    import itertools, sys
    from pathlib import Path
    from angzarr.adapters.files.spool import Spool
    from contracts.dead_letters import a_letter

    spool = Spool(Path(sys.argv[1]), max_bytes=int(sys.argv[3]))
    filler = {"filler": "x" * 20_000}
    for number in itertools.count():
        letters = [a_letter(sys.argv[2], number * 3 + n, metadata=filler) for n in range(3)]
        answers = spool.put(letters)
        print(number if answers == [None] * 3 else "full", flush=True)
        if answers != [None] * 3:
            break
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "spool"
    Spool(path, max_bytes=2**30).prepare()
    return path


def begin_writer(path, name, max_bytes=2**30):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), name, str(max_bytes)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )  # fmt: skip


def confirmed_by(writer):
    """Return the ids of the letters that *writer* said were confirmed, to its end."""
    batches = [int(line) for line in writer.stdout.read().split() if line.isdigit()]
    return {f"{writer.args[4]}-{batch * 3 + n}" for batch in batches for n in range(3)}


def test_a_writer_killed_at_any_moment_leaves_every_confirmed_letter_whole(path):
    """Where kill -9 strikes is chance: several writers, each after another number of batches."""
    chance = random.Random(20)
    promised: set[str] = set()
    for round_ in range(6):
        with begin_writer(path, f"round{round_}") as writer:
            wait_until(lambda r=round_: list(path.glob(f"*-round{r}-*.letter")), "it writes")
            time.sleep(chance.random() * 0.1)  # somewhere within a batch
            writer.kill()
            promised |= confirmed_by(writer)
    assert promised
    folder = FolderOfLetters(path)
    read = [folder.read(one) for one in folder.waiting()]
    assert promised <= {letter.id for letter in read}
    assert all(letter.metadata["filler"] == FILLER for letter in read)


def test_processes_that_write_at_once_keep_the_bound_and_lose_nothing(path):
    bound = 4 * 2**20
    with ExitStack() as stack:
        writers = [stack.enter_context(begin_writer(path, f"w{n}", bound)) for n in range(4)]
        promised = {one for writer in writers for one in confirmed_by(writer)}
    assert [writer.returncode for writer in writers] == [0] * 4
    folder = FolderOfLetters(path)
    waiting = folder.waiting()
    assert promised <= {one.letter_id for one in waiting}
    largest = max(one.size for one in waiting)
    assert folder.tally().size <= bound + 4 * max(bound * UNLOOKED_SHARE, largest)
    assert not list(path.glob(".unfinished-*"))


def in_child(work):
    """Run *work* in a forked child and return what it says."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=lambda: answers.put(work()))
    child.start()
    child.join(60)
    return answers.get()


def test_a_forked_child_writes_names_of_its_own(path):
    spool = Spool(path, max_bytes=2**30)
    spool.put([a_letter("order", 0)])
    assert in_child(lambda: spool.put([a_letter("order", 1)])) == [None]
    assert spool.put([a_letter("order", 2)]) == [None]
    waiting = FolderOfLetters(path).waiting()
    assert [one.letter_id for one in waiting] == ["order-0", "order-1", "order-2"]
    assert len({one.name.split("-")[1] for one in waiting}) == 2


def test_a_child_forked_while_a_thread_is_writing_is_not_blocked(path):
    spool = Spool(path, max_bytes=2**30)
    with spool._lock:  # as another thread's put would
        assert in_child(lambda: spool.put([a_letter("order")])) == [None]


def test_a_file_size_limit_refuses_with_a_reason_and_leaves_no_half_file(path):
    """RLIMIT_FSIZE is as near to a full disk as one comes without being root."""

    def put():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        small, large = a_letter("order", 0), a_letter("order", 1, metadata={"filler": FILLER})
        return Spool(path, max_bytes=2**30).put([small, large, small])

    first, second, third = in_child(put)
    assert (first, third) == (None, None)
    assert "is full: file too large" in second
    assert {one.letter_id for one in FolderOfLetters(path).waiting()} == {"order-0"}
    assert not list(path.glob(".unfinished-*"))


def test_the_lock_of_a_killed_forwarder_is_free(path):
    script = """
        import sys, time
        from pathlib import Path
        from angzarr.adapters.files.whole_files import FolderLock

        lock = FolderLock(Path(sys.argv[1]))
        print(lock.take(), flush=True)
        time.sleep(60)
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "True\n"
        lock = FolderLock(path)
        assert not lock.take()
        holder.send_signal(signal.SIGKILL)
    wait_until(lock.take, "the dead process's lock is free")
    lock.free()


def test_a_child_that_was_forked_meanwhile_does_not_keep_the_lock(path):
    lock = FolderLock(path)
    assert lock.take()
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()
    child = fork.Process(target=lambda: (begun.set(), time.sleep(60)))
    child.start()
    try:
        assert begun.wait(60)
        os.close(lock._file)  # what happens to it when the parent dies
        lock._file = None
        other = FolderLock(path)
        assert other.take()
        other.free()
    finally:
        child.kill()
        child.join()


def test_what_a_spool_holds_is_forwarded_and_what_is_damaged_set_aside(path):
    spool, folder, queue = Spool(path, max_bytes=2**30), FolderOfLetters(path), Target("kafka")
    spool.put([a_letter("order", n) for n in range(250)])
    broken = folder.waiting()[100]
    os.truncate(path / broken.name, 20)
    forwarder = Forwarder(spool=folder, queue=queue, chance=lambda: 0.5)
    while not forwarder.batch().empty:
        pass
    assert queue.taken == [f"order-{n}" for n in range(250) if n != 100]
    assert folder.set_apart(Aside.DAMAGED) == [broken]
    assert folder.tally()[:2] == (0, broken.size)
