"""A soft limit raises in the handler that it is meant for, and nowhere else."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

from angzarr.delivery.async_runner import INTERRUPTER, HandlerInterrupter, run
from polling import wait_until

WAKE = signal.SIGRTMIN + 5


class Struck(Exception):
    """What a strike raises here."""


@pytest.fixture
def interrupter():
    made = HandlerInterrupter()
    before = signal.signal(WAKE, made.heed)
    yield made
    signal.signal(WAKE, before)


def main_thread() -> int:
    ident = threading.main_thread().ident
    assert ident is not None
    return ident


def strike_soon(interrupter, thread):
    """Strike from another thread, which waits until a handler runs."""
    done = threading.Event()

    def strike():
        wait_until(lambda: interrupter.strike(thread, Struck, WAKE), "a handler")
        done.set()

    threading.Thread(target=strike).start()
    return done


def test_a_handler_of_the_main_thread_is_woken_out_of_a_system_call(interrupter):
    done = strike_soon(interrupter, main_thread())
    with pytest.raises(Struck), interrupter:
        time.sleep(60)
    assert done.wait(60)


def test_nothing_is_struck_outside_a_handler(interrupter):
    assert not interrupter.strike(main_thread(), Struck, WAKE)
    with interrupter:
        pass
    assert not interrupter.strike(main_thread(), Struck, WAKE)


def test_a_strike_that_arrives_late_does_not_hit_the_next_handler(interrupter):
    signal.pthread_sigmask(signal.SIG_BLOCK, [WAKE])
    try:
        with interrupter:
            assert interrupter.strike(main_thread(), Struck, WAKE)
    finally:
        with interrupter:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [WAKE])
            time.sleep(0)


def in_thread(work):
    found = []

    def go():
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, found


def test_a_handler_of_another_thread_is_struck(interrupter):
    def work():
        with interrupter:
            while True:
                time.sleep(0.001)

    thread, found = in_thread(work)
    assert strike_soon(interrupter, thread.ident).wait(60)
    thread.join(60)
    assert isinstance(found[0], Struck)


def test_no_strike_reaches_a_thread_after_its_handler(interrupter):
    """The handler ends before the thread looks for the error that was set for it."""
    for _ in range(200):
        gate = threading.Event()

        def work(gate=gate):
            try:
                with interrupter:
                    gate.wait()
            except Struck:
                return "struck"
            return sum(range(2000))  # enough steps to meet an error that came too late

        thread, found = in_thread(work)
        wait_until(lambda thread=thread: thread.ident is not None, "the thread")
        gate.set()
        interrupter.strike(thread.ident, Struck, WAKE)
        thread.join(60)
        assert found[0] in ("struck", 1999000)


#: Traces a call after a handler of another thread was struck, and one whose strike came too late.
TRACED = """
import signal, sys, threading, time
from angzarr.delivery.async_runner import HandlerInterrupter

interrupter, entered, ready = HandlerInterrupter(), threading.Event(), threading.Event()

def struck():
    try:
        with interrupter:
            entered.set()
            while True:
                time.sleep(0.001)
    except TimeoutError:
        pass

def missed():
    with interrupter:
        interrupter._threads[threading.get_ident()] = True

thread = threading.Thread(target=struck)
thread.start()
entered.wait()
interrupter.strike(thread.ident, TimeoutError, signal.SIGUSR1)
thread.join()
late = threading.Thread(target=missed)
late.start()
late.join()
sys.settrace(lambda *_: None)
print(len("traced"))
(lambda: None)()
sys.settrace(None)
"""


def test_after_a_strike_a_tracer_does_not_hang():
    told = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=120, check=True
    )
    assert told.stdout == "6\n"


def test_a_strike_that_arrives_while_the_handler_is_left_is_its_own(interrupter, monkeypatch):
    def work():
        with interrupter:
            pass

    leave = HandlerInterrupter._leave

    def struck_amid_it(self):
        monkeypatch.undo()
        raise Struck

    monkeypatch.setattr(HandlerInterrupter, "_leave", struck_amid_it)
    thread, found = in_thread(work)
    thread.join(60)
    assert isinstance(found[0], Struck)
    assert HandlerInterrupter._leave is leave
    assert not interrupter.strike(thread.ident, Struck, WAKE), "it is in no handler any more"


def test_a_coroutine_that_is_struck_before_it_begins_raises_at_once(monkeypatch):
    """The loop is busy, as on a slow machine: the strike comes first in its line."""
    begun = []

    async def handler():
        begun.append("begun")

    def hand_over(work, loop):
        assert INTERRUPTER.strike(threading.get_ident(), Struck, WAKE)
        return threadsafe(work, loop)

    threadsafe = asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", hand_over)

    def work():
        with INTERRUPTER:
            return run(handler())

    thread, found = in_thread(work)
    thread.join(60)
    assert not begun
    assert isinstance(found[0], Struck)


def test_a_coroutine_that_a_thread_waits_for_is_struck_where_it_waits():
    where, begun = [], threading.Event()

    async def handler():
        begun.set()
        try:
            await asyncio.sleep(600)
        except Struck:
            where.append("in the coroutine")
            await asyncio.sleep(0)  # it is not cancelled, and may go on
            return "told"

    def work():
        with INTERRUPTER:
            return run(handler())

    thread, found = in_thread(work)
    assert begun.wait(60)
    assert strike_soon(INTERRUPTER, thread.ident).wait(60)
    thread.join(60)
    assert (where, found) == (["in the coroutine"], ["told"])
