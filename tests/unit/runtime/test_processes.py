"""One value a process, and no fork amid an import of another thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from angzarr.runtime import processes as forks
from angzarr.runtime.processes import OncePerProcess, PeriodicThread
from polling import wait_until


def test_many_threads_get_the_same_value():
    made = []

    def make():
        time.sleep(0.01)  # a slow connect: all threads arrive meanwhile
        made.append(object())
        return made[-1]

    once = OncePerProcess(make)
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(once.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert set(seen) == set(made)


def test_a_forgotten_value_is_returned_once_and_made_anew():
    once = OncePerProcess(object)
    first = once.get()
    assert once.forget() is first
    assert once.forget() is None
    assert once.get() is not first


def test_a_child_makes_its_own_even_if_its_parent_held_the_lock():
    once = OncePerProcess(os.getpid)
    parent = once.get()
    reader, writer = os.pipe()
    with once._lock:
        child = os.fork()
        if child == 0:
            os.write(writer, str(once.get()).encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    told = int(os.read(reader, 20))
    os.close(reader)
    assert told == child != parent


def test_an_app_that_is_closed_lets_go_what_it_opened(make_app):
    app = make_app()
    opened = (app._runtime.executor(), app._parts.flow, app.facts)
    app.close()
    anew = (app._runtime.executor(), app._parts.flow, app.facts)
    assert not any(one is other for one, other in zip(opened, anew, strict=True))
    app.close()
    app.close()


def test_what_is_set_aside_has_made_nothing_and_is_afterwards_what_it_was():
    kept = OncePerProcess(object)
    first = kept.get()
    with kept.set_aside():
        assert kept.made() is None
        assert kept.get() is not first
    assert kept.get() is first


class Turns:
    def __init__(self, stopping):
        self.stopping = stopping
        self.taken = 0
        self.left = threading.Event()

    def turn(self):
        self.taken += 1
        return timedelta(0) if self.taken < 5 else timedelta(hours=1)

    def leave(self):
        self.left.set()


@pytest.fixture
def made():
    turns = []

    def make(stopping):
        turns.append(Turns(stopping))
        return turns[0]

    thread = PeriodicThread("test", make)
    yield thread, turns[0]
    thread.end()


def test_turns_are_taken_as_often_as_they_ask_and_then_left(made):
    thread, turns = made
    thread.start()
    wait_until(lambda: turns.taken == 5, "five turns were taken")
    assert not turns.stopping()
    thread.end()
    assert turns.stopping()
    assert turns.left.is_set()
    thread.end()


def test_a_forked_child_ends_nothing(made, monkeypatch):
    thread, turns = made
    thread.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: thread._pid + 1)
        thread.end()
    assert not turns.stopping()


def test_turns_can_be_taken_by_hand_and_are_left_without_a_thread(made):
    thread, turns = made
    thread.turn()
    thread.turn()
    assert turns.taken == 2
    before = threading.active_count()
    thread.end()
    assert turns.left.is_set()
    assert threading.active_count() == before


_FORKING = """
import os, signal, sys, threading, time
{guard}
threading.Thread(target=lambda: __import__("slow"), daemon=True).start()
while "slow" not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if not child:
    signal.alarm(2)  # what hangs is killed
    import slow
    os._exit(0 if slow.whole else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
"""


@pytest.mark.parametrize(
    ("guard", "hangs"),
    [("from angzarr.runtime import processes as forks; forks.guard()", False), ("", True)],
)
def test_a_child_can_import_what_a_thread_of_its_parent_imported_at_the_fork(
    tmp_path, guard, hangs
):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.2)\nwhole = True\n")
    script = tmp_path / "forking.py"
    script.write_text(_FORKING.format(guard=guard))
    done = subprocess.run([sys.executable, str(script)], check=False, timeout=60)
    assert bool(done.returncode) is hangs


def test_a_fork_waits_for_no_import_for_ever(tmp_path, monkeypatch):
    (tmp_path / "endless_import.py").write_text(
        "import threading\nimport sys\nsys.modules['gate_of_endless_import'].wait(20)\n"
    )
    gate = threading.Event()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gate_of_endless_import", gate)
    importing = threading.Thread(target=lambda: __import__("endless_import"))
    importing.start()
    try:
        while "endless_import" not in sys.modules:
            time.sleep(0.001)
        assert not forks.wait_for_imports(0.05)
    finally:
        gate.set()
        importing.join()
        sys.modules.pop("endless_import")
    assert forks.wait_for_imports(0.05)


def test_an_import_of_the_forking_thread_itself_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "forks_amid_import.py").write_text(
        "from angzarr.runtime import processes as forks\n"
        "waited_well = forks.wait_for_imports(0.05)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert __import__("forks_amid_import").waited_well
    sys.modules.pop("forks_amid_import")
