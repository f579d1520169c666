"""Who blocks an event loop is named."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from datetime import timedelta
from typing import Any

import pytest

from angzarr.adapters.celery.worker import loop_watch
from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlets
from angzarr.adapters.celery.worker.loop_watch import LoopWatch
from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.delivery import async_runner
from polling import wait_until


class HandTime:
    now = 0.0

    def __call__(self) -> float:
        return self.now


#: The threads of what a test began.
POOLS: list[SteadyExecutor] = []


@pytest.fixture
def loop():
    async_runner.begin_sharing()
    yield async_runner.begin_shared()
    async_runner.end_sharing()
    while POOLS:  # the greenlets of the loop hold it, and tests count the threads of pools
        POOLS.pop().shutdown()


@pytest.fixture
def time():
    return HandTime()


@pytest.fixture
def died():
    return []


@pytest.fixture
def watch(loop, time, died):
    made = LoopWatch(loop, timedelta(seconds=1), died.append, time)
    made.turn()
    wait_until(lambda: not made._is_asked, "the loop to answer")
    return made


class Block:
    """A handler that keeps the loop until it may go on."""

    def __init__(self) -> None:
        self.blocks, self.ends = threading.Event(), threading.Event()

    async def handle(self) -> None:
        self.blocks.set()
        self.ends.wait(60)

    async def handle_through_a_task(self) -> None:
        await asyncio.gather(self.handle())


@pytest.fixture
def block():
    made = Block()
    yield made
    made.ends.set()


def begin(loop, work) -> None:
    POOLS.append(SteadyExecutor(1))
    DeliveryGreenlets(loop, POOLS[-1], 1).begin("some.task[7]", work)


@pytest.mark.parametrize("way", ["handle", "handle_through_a_task"])
def test_a_blocked_loop_is_told_once_with_delivery_and_line(loop, time, watch, block, caplog, way):
    begin(loop, lambda _run: async_runner.run(getattr(block, way)()))
    assert block.blocks.wait(60)
    watch.turn()
    time.now = 0.9
    watch.turn()
    assert not caplog.records
    time.now = 1.0
    for _ in range(3):
        watch.turn()
        time.now += 1
    (record,) = caplog.records
    assert record.getMessage().startswith("loop_blocked: some.task[7] keeps")
    assert "test_loop_watch.py:" in record.getMessage()
    assert "in handle:" in record.getMessage()


PYTHON, PACKAGES = (sysconfig.get_path(kind) for kind in ("stdlib", "purelib"))


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["/app/shop.py", f"{PACKAGES}/requests/api.py", f"{PYTHON}/socket.py"], "/app/shop.py"),
        (["/app/shop.py", "/app/mail.py", f"{PYTHON}/ssl.py"], "/app/mail.py"),
        ([f"{PACKAGES}/shop.py", f"{PACKAGES}/requests.py"], f"{PACKAGES}/shop.py"),
        ([f"{PYTHON}/asyncio/events.py", f"{PYTHON}/ssl.py"], f"{PYTHON}/ssl.py"),
    ],
)
def test_the_line_is_the_users_or_else_that_of_an_installed_app(files, named):
    source = "def call(rest):\n    return rest[0](rest[1:]) if rest else find()\n"
    calls: list[Any] = []
    for file in files:
        made: dict[str, Any] = {"find": lambda: loop_watch._place(frames())}
        exec(compile(source, file, "exec"), made)  # noqa: S102 - code of each of the files
        calls.append(made["call"])

    def frames():
        found = list(loop_watch._outwards(sys._getframe(2)))
        return found[: len(files)]

    assert calls[0](calls[1:]).f_code.co_filename == named


def test_code_of_the_road_that_blocks_is_named_too(loop, time, watch, block, caplog):
    def work(_run):
        block.blocks.set()
        block.ends.wait(60)

    begin(loop, work)
    assert block.blocks.wait(60)
    watch.turn()
    time.now = 1.0
    watch.turn()
    assert "loop_blocked: some.task[7] keeps" in caplog.text


def test_what_is_no_delivery_is_named_by_its_line(loop, time, watch, block, caplog):
    asyncio.run_coroutine_threadsafe(block.handle(), loop)
    assert block.blocks.wait(60)
    watch.turn()
    time.now = 1.0
    watch.turn()
    assert "loop_blocked: code of no delivery keeps" in caplog.text


def test_a_loop_whose_thread_has_ended_ends_its_process(time, died):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    watch = LoopWatch(loop, timedelta(seconds=1), died.append, time)
    watch.turn()
    wait_until(lambda: not watch._is_asked, "the loop to answer")
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    watch.turn()
    time.now = 1.0
    watch.turn()
    loop.close()
    (why,) = died
    assert "its event loop has ended" in why


def test_a_loop_that_turns_is_left_alone(time, watch, caplog):
    for _ in range(20):
        time.now += 0.9
        watch.turn()
        wait_until(lambda: not watch._is_asked, "the loop to answer")
    assert not caplog.records


def test_each_time_that_it_is_blocked_is_counted_once_and_the_longest_is_kept(
    loop, time, watch, block
):
    assert (watch.times, watch.still_for(), watch.longest()) == (0, 0.0, 0.0)
    begin(loop, lambda _run: async_runner.run(block.handle()))
    assert block.blocks.wait(60)
    watch.turn()
    time.now = 0.9
    watch.turn()
    assert (watch.times, watch.still_for(), watch.longest()) == (0, 0.9, 0.0)
    for time.now in (1.0, 3.0):
        watch.turn()
    assert (watch.times, watch.still_for(), watch.longest()) == (1, 3.0, 3.0)
    block.ends.set()
    wait_until(lambda: watch.still_for() == 0.0, "the loop to answer")
    assert (watch.times, watch.longest()) == (1, 3.0)
