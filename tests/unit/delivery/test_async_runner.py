"""Coroutines on a synchronous worker leave nothing behind; an interrupt strikes a handler once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from angzarr.delivery import async_runner as colour
from angzarr.delivery.async_runner import HandlerInterrupter, Interrupt


class SoftTimeLimit(Exception):
    """What a signal handler raises between two callbacks."""


@pytest.fixture
def struck_by():
    """Raise an error on the main thread, out of a signal handler, soon."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(error, seconds=0.05):
        def strike(_number, _frame):
            raise error

        signal.signal(signal.SIGALRM, strike)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


async def answer(value):
    await asyncio.sleep(0)
    return value


async def fail(error):
    await asyncio.sleep(0)
    raise error


async def pending_tasks():
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_a_value_comes_back_and_so_does_an_error():
    assert colour.run(answer(5)) == 5
    with pytest.raises(ValueError, match="no"):
        colour.run(fail(ValueError("no")))


def test_one_loop_serves_all_deliveries_of_a_process():
    async def loop():
        return asyncio.get_running_loop()

    assert colour.run(loop()) is colour.run(loop())


@pytest.mark.parametrize("error", [SoftTimeLimit(), KeyboardInterrupt(), SystemExit(1)])
def test_a_strike_leaves_nothing_pending(struck_by, error):
    cancelled = []

    async def child():
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append("child")
            raise

    async def work():
        children = [asyncio.create_task(child()) for _ in range(3)]
        await asyncio.gather(*children)

    struck_by(error)
    with pytest.raises(type(error)):
        colour.run(work())
    assert cancelled == ["child"] * 3
    assert colour.run(pending_tasks()) == []


def test_a_task_that_refuses_to_end_is_left_behind_with_its_loop(struck_by, monkeypatch):
    monkeypatch.setattr(colour, "GRACE", 0.05)
    left = []

    async def stubborn():
        left.append((asyncio.get_running_loop(), asyncio.current_task()))
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                continue

    struck_by(SoftTimeLimit())
    with pytest.raises(SoftTimeLimit):
        colour.run(stubborn())
    assert colour.run(pending_tasks()) == []
    assert colour.run(answer(1)) == 1
    ((loop, task),) = left
    task._log_destroy_pending = False  # it is meant to be left behind
    loop.close()


def test_a_cancellation_from_within_is_an_error_like_any_other():
    async def work():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    with pytest.raises(concurrent.futures.CancelledError):
        colour.run(work())


def test_pool_threads_share_one_loop_on_a_thread_of_its_own():
    async def where():
        return threading.current_thread().name, id(asyncio.get_running_loop())

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: colour.run(where()), range(20)))
    assert len(found) == 1
    assert found.pop()[0] == "angzarr-loop"


def test_pool_threads_wait_together_and_not_in_turn():
    barrier = []

    async def meet():
        barrier.append(None)
        while len(barrier) < 4:  # noqa: ASYNC110 - four threads meet, an Event has one loop
            await asyncio.sleep(0.001)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: colour.run(meet()), range(4))) == [None] * 4


def test_an_error_comes_back_to_its_pool_thread():
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="no"):
        pool.submit(lambda: colour.run(fail(ValueError("no")))).result(60)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_an_exit_asked_for_in_a_pool_thread_does_not_end_the_loop_of_all(error):
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="asked its process to end"):
            pool.submit(lambda: colour.run(fail(error))).result(60)
        assert pool.submit(lambda: colour.run(answer("well"))).result(60) == "well"


def test_a_fork_makes_a_loop_of_its_own():
    import os

    colour.run(answer(1))
    child = os.fork()
    if child == 0:  # no assertion may leave this branch
        try:
            os._exit(0 if colour.run(answer(7)) == 7 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_cuts_the_handler_that_runs():
    interrupter = HandlerInterrupter()
    with pytest.raises(Interrupt), interrupter:
        interrupter.interrupt()


def test_what_comes_after_the_handler_is_let_be():
    interrupter = HandlerInterrupter()
    with interrupter:
        pass
    interrupter.interrupt()  # the outcome is being made true
    assert not interrupter.inside


def test_a_strike_before_the_handler_waits_for_it():
    interrupter = HandlerInterrupter()
    interrupter.interrupt()
    ran = []
    with pytest.raises(Interrupt), interrupter:
        ran.append("handler")
    assert ran == []


def test_a_handler_that_cleans_up_is_not_cut_again():
    interrupter = HandlerInterrupter()
    cleaned = []

    def handler():
        try:
            interrupter.interrupt()
        finally:
            interrupter.interrupt()
            cleaned.append(True)

    with pytest.raises(Interrupt), interrupter:
        handler()
    assert cleaned == [True]


def test_a_handler_that_catches_every_exception_is_cut_all_the_same():
    interrupter = HandlerInterrupter()

    def handler():
        try:
            interrupter.interrupt()
        except Exception:
            pytest.fail("it swallowed the cut")

    with pytest.raises(Interrupt), interrupter:
        handler()


def test_signals_reach_the_main_thread_only_so_other_threads_are_not_in_it():
    interrupter = HandlerInterrupter()
    seen = []

    def run():
        with interrupter:
            seen.append(interrupter.inside)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


def test_another_worker_of_this_process_begins_anew():
    interrupter = HandlerInterrupter()
    interrupter.interrupt()
    interrupter.reset()
    with interrupter:
        assert interrupter.inside
