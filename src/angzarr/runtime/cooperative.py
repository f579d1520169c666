"""Blocking calls of code that shares its thread with other deliveries.

A pool of coroutines runs many deliveries on its loop's thread. One that waits for a server, a
coroutine or the time must not stop the others: it says so here, and gives the thread away. Code
that has its thread to itself calls, and waits, as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from angzarr.clock import Clock

T = TypeVar("T")


class CooperativeRun(Protocol):
    """A run that shares its thread, and gives it away while it waits."""

    @property
    def name(self) -> str:
        """What it runs, for people."""

    #: Whether an error may be struck into its coroutine, as by a soft time limit.
    is_struck: bool

    @property
    def is_here(self) -> bool:
        """True if the code that asks is this run's own, and no coroutine or thread of its."""

    def call(self, blocking: Callable[[], T], /) -> T:
        """What *blocking* returns or raises, called in another thread in this run's context."""

    def gather(self, to: Callable[[list[T]], object], items: Sequence[T], /) -> None:
        """Call *to* soon with *items* and those of others, before this run's end is told."""

    def sleep(self, seconds: float, /) -> None:
        """Let *seconds* pass."""

    def finish(
        self,
        work: Coroutine[Any, Any, T],
        strike: Callable[[type[Exception]], object] | None = None,
        /,
    ) -> T:
        """The result of *work* on the loop; *strike* raises an error in it meanwhile."""


#: The run that this code belongs to; its coroutines and threads inherit it.
RUN: Final[ContextVar[CooperativeRun | None]] = ContextVar("angzarr_cooperative_run", default=None)


def cooperative_run() -> CooperativeRun | None:
    """The run whose own code asks; None: it has its thread to itself."""
    run = RUN.get()
    return run if run is not None and run.is_here else None


def in_event_loop() -> bool:
    """True if an event loop of asyncio runs on this thread: what blocks would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def call_blocking(blocking: Callable[[], T]) -> T:
    """What *blocking* returns or raises; it blocks no thread that others share.

    It may run in another thread: *blocking* holds no lock that this thread has.
    """
    run = cooperative_run()
    return blocking() if run is None else run.call(blocking)


def gather(to: Callable[[list[T]], object], items: Sequence[T]) -> None:
    """Call *to* with *items*: at once, or with those of others that share this thread.

    It is called before the end of the run that asks is told, so before it is acknowledged.
    """
    run = cooperative_run()
    if run is None:
        to(list(items))
    else:
        run.gather(to, items)


class YieldingClock:
    """*clock*, whose `sleep` gives a shared thread away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """The time of the clock."""
        return self._clock.now()

    def sleep(self, span: timedelta) -> None:
        """Let *span* pass; other deliveries run meanwhile."""
        run = cooperative_run()
        if run is None:
            self._clock.sleep(span)
        elif span > timedelta(0):
            run.sleep(span.total_seconds())

    async def asleep(self, span: timedelta) -> None:
        """Let *span* pass in a coroutine."""
        await self._clock.asleep(span)
