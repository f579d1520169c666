"""Deliveries that share the thread of one event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar
from datetime import timedelta

import pytest
from greenlet import getcurrent

from angzarr.adapters.celery.worker import delivery_greenlets
from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlets
from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.clock import SystemClock
from angzarr.delivery import async_runner
from angzarr.delivery.async_runner import Interrupt
from angzarr.runtime.cooperative import (
    YieldingClock,
    call_blocking,
    cooperative_run,
    gather,
)
from polling import wait_until

WHOSE: ContextVar[int] = ContextVar("whose")


class Stage:
    """A loop with its deliveries, and what these noted."""

    def __init__(self, most: int) -> None:
        self.noted: list = []
        self.loop = async_runner.begin_shared()
        self.threads = SteadyExecutor(2)
        self.greenlets = DeliveryGreenlets(self.loop, self.threads, most)

    def begin(self, work) -> None:
        self.greenlets.begin("some work", work)

    def seen(self, number: int) -> list:
        wait_until(lambda: len(self.noted) >= number, f"{number} to be noted")
        return self.noted


@pytest.fixture
def make_stage():
    async_runner.begin_sharing()
    made = []

    def make(most: int = 100) -> Stage:
        made.append(Stage(most))
        return made[-1]

    yield make
    for stage in made:
        stage.threads.shutdown()
    async_runner.end_sharing()


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_coroutines_of_many_deliveries_wait_for_each_other_on_one_thread(make_stage):
    stage, come, complete = make_stage(), set(), asyncio.Event()

    async def meet(n):
        come.add(n)
        if len(come) == 20:
            complete.set()
        await complete.wait()
        return n

    def work(n):
        met = async_runner.run(meet(n))
        stage.noted.append((met, threading.get_ident()))

    for n in range(20):
        stage.begin(lambda _run, n=n: work(n))
    met = stage.seen(20)
    assert {n for n, _ in met} == set(range(20))
    assert len({thread for _, thread in met}) == 1


def test_no_more_than_asked_for_run_at_once_and_all_do(make_stage):
    stage, running, gate = make_stage(3), [], asyncio.Event()

    async def wait(n):
        running.append(n)
        await gate.wait()

    def work(n):
        async_runner.run(wait(n))
        stage.noted.append(n)

    for n in range(8):
        stage.begin(lambda _run, n=n: work(n))
    wait_until(lambda: len(running) == 3, "three to run")
    done = threading.Event()
    stage.loop.call_soon_threadsafe(lambda: stage.loop.call_soon(done.set))
    assert done.wait(60)
    assert running == [0, 1, 2]
    stage.loop.call_soon_threadsafe(gate.set)
    assert sorted(stage.seen(8)) == list(range(8))


def test_a_blocking_call_leaves_the_thread_to_others_and_keeps_its_context(make_stage):
    stage, gate = make_stage(), threading.Event()

    def block():
        gate.wait(60)
        WHOSE.set(WHOSE.get() + 1)
        return threading.current_thread().name

    def blocking(_run):
        WHOSE.set(7)
        stage.noted.append((call_blocking(block), WHOSE.get()))

    stage.begin(blocking)
    stage.begin(lambda _run: (gate.set(), stage.noted.append(WHOSE.get(None))))
    other, (thread, whose) = stage.seen(2)
    assert other is None
    assert thread.startswith("angzarr-pool")
    assert whose == 8


def test_what_a_blocking_call_or_a_coroutine_raises_is_raised_in_its_delivery(make_stage):
    stage = make_stage()

    def fail():
        raise LookupError("by a call")

    async def fail_softly():
        raise LookupError("by a coroutine")

    async def cancel():
        raise asyncio.CancelledError

    def work(_run):
        for call in (
            lambda: call_blocking(fail),
            lambda: async_runner.run(fail_softly()),
            lambda: async_runner.run(cancel()),
        ):
            try:
                call()
            except Exception as error:
                stage.noted.append(str(error))

    stage.begin(work)
    assert stage.seen(3) == [
        "by a call", "by a coroutine", "the coroutine was cancelled from within"
    ]  # fmt: skip


def test_a_sleep_leaves_the_thread_to_others(make_stage):
    stage = make_stage()
    clock = YieldingClock(SystemClock())

    def sleeper(_run):
        clock.sleep(timedelta(seconds=0.01))
        stage.noted.append("slept")

    stage.begin(sleeper)
    assert stage.seen(1) == ["slept"]


def test_a_coroutine_and_a_thread_of_a_delivery_are_not_its_own_code(make_stage):
    stage = make_stage()

    async def ask():
        return cooperative_run()

    def work(run):
        here = cooperative_run() is run
        stage.noted.append((here, async_runner.run(ask()), call_blocking(cooperative_run)))

    stage.begin(work)
    assert stage.seen(1) == [(True, None, None)]
    assert cooperative_run() is None


async def wait_until_cancelled(stage):
    try:
        await asyncio.sleep(600)
    finally:
        stage.noted.append("cancelled")


def test_a_cut_cancels_the_coroutine_and_interrupts_the_delivery(make_stage):
    stage, begun = make_stage(), []

    def work(run):
        begun.append(run)
        try:
            async_runner.run(wait_until_cancelled(stage))
        except Interrupt:
            stage.noted.append("interrupted")
            raise

    stage.begin(work)
    wait_until(lambda: begun, "it to begin")
    begun[0].cut()
    assert stage.seen(2) == ["cancelled", "interrupted"]


def test_a_cut_before_the_coroutine_ends_the_wait_before_it(make_stage):
    stage, begun, clock = make_stage(), [], YieldingClock(SystemClock())

    def work(run):
        begun.append(run)
        try:
            clock.sleep(timedelta(seconds=600))
        except Interrupt:
            stage.noted.append("interrupted")

    stage.begin(work)
    wait_until(lambda: begun, "it to begin")
    begun[0].cut()
    assert stage.seen(1) == ["interrupted"]


def test_a_coroutine_that_ignores_a_cut_is_left_behind_and_named(make_stage, caplog, monkeypatch):
    monkeypatch.setattr(delivery_greenlets, "CANCELLED_WITHIN", 0.01)
    stage, begun, ends = make_stage(), [], asyncio.Event()

    async def ignore():
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                stage.noted.append("ignored")

    def work(run):
        begun.append(run)
        try:
            async_runner.run(ignore())
        finally:
            stage.noted.append("left")

    stage.begin(work)
    wait_until(lambda: begun, "it to begin")
    begun[0].cut()
    assert stage.seen(2) == ["ignored", "left"]
    assert "coroutine_abandoned: some work" in caplog.text
    stage.loop.call_soon_threadsafe(ends.set)


def test_an_error_is_struck_into_a_coroutine_and_nowhere_else(make_stage):
    stage, begun, gate = make_stage(), [], threading.Event()

    async def wait():
        try:
            await asyncio.sleep(600)
        except LookupError:
            stage.noted.append("struck")

    def work(run):
        begun.append(run)
        call_blocking(lambda: gate.wait(60))
        async_runner.run(wait())

    stage.begin(work)
    wait_until(lambda: begun, "it to begin")
    assert not begun[0].strike(LookupError)
    gate.set()
    wait_until(lambda: begun[0].strike(LookupError), "the coroutine to begin")
    assert stage.seen(1) == ["struck"]


def test_what_has_ended_leaves_nothing_for_the_collector(make_stage, no_collector):
    stage, kept = make_stage(), []

    def work(run):
        kept.append(weakref.ref(run))
        async_runner.run(asyncio.sleep(0))
        call_blocking(lambda: None)
        stage.noted.append("ended")

    for _ in range(20):
        stage.begin(work)
    stage.seen(20)
    wait_until(lambda: not any(one() for one in kept), "all of them to be freed")


def test_a_coroutine_that_waits_for_what_nobody_has_is_kept(make_stage):
    stage, begun = make_stage(), []

    def work(run):
        begun.append(weakref.ref(run))
        async_runner.run(forever())

    async def forever():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stage.noted.append("ended")

    stage.begin(work)
    wait_until(lambda: begun, "it to begin")
    gc.collect()
    assert begun[0]() is not None
    assert not stage.noted
    begun[0]().cut()
    stage.seen(1)


def test_what_breaks_breaks_alone(make_stage, caplog):
    stage = make_stage(1)

    def broken(_run):
        raise SystemExit(1)

    stage.begin(broken)
    stage.begin(lambda _run: stage.noted.append("next"))
    assert stage.seen(1) == ["next"]
    assert "delivery_broke: some work" in caplog.text


def test_what_is_in_line_when_it_closes_never_begins(make_stage):
    stage, gate = make_stage(1), asyncio.Event()

    def work(_run):
        async_runner.run(gate.wait())
        stage.noted.append("first")

    stage.begin(work)
    wait_until(lambda: not stage.greenlets._line, "the first to begin")
    stage.begin(lambda _run: stage.noted.append("second"))
    stage.greenlets.close()
    stage.loop.call_soon_threadsafe(gate.set)
    assert stage.seen(1) == ["first"]


def in_one_turn(stage, *works) -> None:
    """Begin all *works* in one turn of the loop."""
    stage.greenlets.feed(Hub())  # this thread wakes the loop up when it says so
    for work in works:
        stage.begin(work)
    stage.greenlets.wake()


class Hub:
    """Another loop, whose turns a test takes."""

    def __init__(self) -> None:
        self.on_tick: set = set()


def test_what_another_loop_begins_wakes_this_one_up_once_for_each_of_its_turns(make_stage):
    stage, hub, woken = make_stage(), Hub(), []
    wake = stage.loop.call_soon_threadsafe
    stage.loop.call_soon_threadsafe = lambda *what: (woken.append(what), wake(*what))
    stage.greenlets.feed(hub)
    for n in range(3):
        stage.begin(lambda _run, n=n: stage.noted.append(n))
    assert not woken
    (turn,) = hub.on_tick
    turn()
    assert stage.seen(3) == [0, 1, 2]
    assert len(woken) == 1
    turn()
    assert len(woken) == 1
    other = threading.Thread(target=stage.begin, args=(lambda _run: stage.noted.append(3),))
    other.start()
    other.join()
    assert stage.seen(4)[3] == 3


def test_all_that_one_turn_gathers_goes_before_any_of_its_ends(make_stage):
    stage, heard = make_stage(), []

    def together(items):
        heard.append(items)

    def work(n):
        if n:  # one that gathers nothing may end first
            gather(together, [n, -n])
        stage.greenlets.tell(heard.append, f"end {n}")

    in_one_turn(stage, *[lambda _run, n=n: work(n) for n in range(3)])
    wait_until(lambda: len(heard) == 4, "all to be told")
    assert heard == [[1, -1, 2, -2], "end 0", "end 1", "end 2"]


def test_an_end_that_breaks_keeps_no_other_from_being_told(make_stage, caplog):
    stage, heard = make_stage(), []
    in_one_turn(
        stage,
        lambda _run: stage.greenlets.tell(lambda _end: 1 / 0, 1),
        lambda _run: stage.greenlets.tell(heard.append, 2),
    )
    wait_until(lambda: heard, "the other")
    assert "end_not_told" in caplog.text


def test_what_has_its_thread_to_itself_gathers_nothing():
    heard = []
    gather(heard.append, ["at once"])
    assert heard == [["at once"]]


def test_one_that_is_cut_for_somebody_is_told_of_and_then_interrupted(make_stage):
    stage, begun = make_stage(), []

    def work(run):
        begun.append(run)
        try:
            async_runner.run(wait_until_cancelled(stage))
        finally:
            run.tell(stage.noted.append, "an end that is void")

    stage.begin(work)
    wait_until(lambda: begun, "it to begin")
    begun[0].cut_for(lambda: stage.noted.append("told"))
    assert stage.seen(2) == ["told", "cancelled"]
    wait_until(lambda: begun[0].has_ended, "it to end")
    stage.begin(lambda run: run.tell(stage.noted.append, "the next"))
    assert stage.seen(3) == ["told", "cancelled", "the next"]


@pytest.mark.parametrize("is_struck", [True, False])
def test_one_that_is_cut_before_its_coroutine_took_a_step_runs_none_of_it(make_stage, is_struck):
    stage = make_stage()

    async def never():
        stage.noted.append("began")

    def work(run):
        run.is_struck = is_struck
        run.cut_for(lambda: stage.noted.append("told"))
        try:
            async_runner.run(never())
        finally:
            stage.noted.append("ended")

    stage.begin(work)
    assert stage.seen(2) == ["told", "ended"]


def test_one_that_has_ended_is_cut_for_nobody(make_stage):
    stage, kept, done = make_stage(), [], threading.Event()
    stage.begin(kept.append)
    wait_until(lambda: kept and kept[0].has_ended, "it to end")
    kept[0].cut_for(lambda: stage.noted.append("told"))
    stage.loop.call_soon_threadsafe(done.set)
    assert done.wait(60)
    assert stage.noted == []


def test_one_in_line_that_is_cut_is_told_of_and_never_begins(make_stage):
    stage, gate = make_stage(1), asyncio.Event()
    stage.begin(lambda _run: async_runner.run(gate.wait()))
    second = stage.greenlets.begin("second", lambda _run: stage.noted.append("second"))
    stage.begin(lambda _run: stage.noted.append("third"))
    second.cut_for(lambda: stage.noted.append("told"))
    stage.loop.call_soon_threadsafe(gate.set)
    assert stage.seen(2) == ["told", "third"]


def test_those_that_run_one_after_the_other_share_a_greenlet_and_no_context(make_stage):
    stage, whose = make_stage(1), []

    async def wait():
        await asyncio.sleep(0)

    def work(n):
        stage.noted.append(getcurrent())
        whose.append(WHOSE.get(None))
        WHOSE.set(n)
        async_runner.run(wait())
        whose.append(WHOSE.get())

    for n in range(5):
        stage.begin(lambda _run, n=n: work(n))
    wait_until(lambda: len(whose) == 10, "all to run")
    assert len(set(stage.noted)) == 1
    assert whose == [None, 0, None, 1, None, 2, None, 3, None, 4]


def test_what_a_run_left_in_its_context_goes_with_it(make_stage, no_collector):
    stage, kept = make_stage(), []

    class Large:
        """What a handler binds."""

    def work(_run):
        large = Large()
        kept.append(weakref.ref(large))
        LARGE.set(large)

    stage.begin(work)
    wait_until(lambda: kept and kept[0]() is None, "it to be freed")


LARGE: ContextVar[object] = ContextVar("large")
