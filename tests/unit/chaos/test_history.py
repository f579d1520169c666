"""The journal outlives its writer, and is read as it grows."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from angzarr import Postpone, Skip
from chaos.history import DYING, ENDED, FAILED, POSTPONED, SKIPPED, Journal, Pair, Reader

PAIR = Pair("h", "e")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history"


@pytest.mark.parametrize(
    ("error", "how"),
    [(None, ENDED), (Skip("no"), SKIPPED), (Postpone(1), POSTPONED), (ValueError(), FAILED)],
)
def test_a_run_tells_how_it_ended(file, error, how):
    with (
        suppress(Skip, Postpone, ValueError),
        Journal(file, "w1").run(PAIR, attempt=2, replay=0, hop=1),
    ):
        if error is not None:
            raise error
    (run,) = Reader(file).runs()
    assert (run.pair, run.attempt, run.hop, run.worker, run.how) == (PAIR, 2, 1, "w1", how)
    assert run.began <= run.closed


def test_a_run_that_was_killed_has_no_end_and_its_beginning_is_kept(file):
    child = os.fork()
    if not child:
        with Journal(file, "w1").run(PAIR, attempt=1, replay=0, hop=0):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (run,) = Reader(file).runs()
    assert (run.pid, run.closed, run.how) == (child, None, "")


def test_a_run_that_ends_its_own_process_says_so(file):
    journal = Journal(file)
    with suppress(SystemExit), journal.run(PAIR, attempt=1, replay=0, hop=0) as run:
        journal.write(DYING, run=run)
        raise SystemExit
    assert [run.how for run in Reader(file).runs()] == [DYING]


def test_a_reader_that_many_threads_ask_misses_no_line(file):
    reader, journal = Reader(file), Journal(file, "w1")
    over = threading.Event()

    def ask():
        while not over.is_set():
            reader.runs()

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        for _ in range(500):
            with journal.run(PAIR, attempt=1, replay=0, hop=0):
                pass
        over.set()
        for one in asking:
            one.result(10)
    assert [run.how for run in reader.runs()] == [ENDED] * 500


def test_a_reader_takes_whole_lines_only_and_goes_on_where_it_was(file):
    reader, journal = Reader(file), Journal(file, "w1")
    assert reader.runs() == []
    with journal.run(PAIR, attempt=1, replay=0, hop=0):
        text = file.read_bytes()
        file.write_bytes(text + b'{"at": 1, "wh')
        (run,) = reader.runs()
        assert run.closed is None
        file.write_bytes(text)
    (run,) = reader.runs()
    assert run.how == ENDED
