"""AsyncPublisher: publishes for coroutines, on threads beside their event loop.

A publish waits for the broker; a loop must not. At most THREADS publishes run at a time, and the
coroutines of further ones wait in their loop, where they hold neither thread nor connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from angzarr.runtime.processes import OncePerProcess

T = TypeVar("T")

_log = logging.getLogger("angzarr.publishing")

#: Each that is busy uses one connection of Celery's pool, which has 10 (`broker_pool_limit`).
THREADS: Final = 8


class AsyncPublisher:
    """Runs calls that publish on threads; safe to use from several loops, and after a fork."""

    def __init__(self) -> None:
        self._pool = OncePerProcess(partial(ThreadPoolExecutor, THREADS, "angzarr-publish"))
        #: Of each loop: the threads that its coroutines may still use.
        self._free: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    async def run(self, call: Callable[[], T]) -> T:
        """Run *call* on a thread, in the context of this coroutine; return or raise as it does.

        A coroutine that is cancelled before its turn has not begun *call*. One that is cancelled
        later goes on at once, while *call* goes on to its end and keeps its thread until then.
        """
        loop = asyncio.get_running_loop()
        free = self._free.setdefault(loop, asyncio.Semaphore(THREADS))
        await free.acquire()

        def let_go(_ended: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits in it
                loop.call_soon_threadsafe(free.release)

        try:
            future = self._submit(partial(contextvars.copy_context().run, call))
        except BaseException:
            free.release()
            raise
        future.add_done_callback(let_go)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_tell_unseen)
            raise

    def close(self) -> None:
        """Wait for the calls that have begun, and end the threads; a later `run` makes new ones."""
        pool = self._pool.forget()
        if pool is not None:
            pool.shutdown()

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        while True:
            pool = self._pool.get()
            try:
                return pool.submit(call)
            except RuntimeError:  # closed since it was got, or this process ends
                if self._pool.made() is pool:
                    raise


def _tell_unseen(ended: Future[Any]) -> None:
    """Log the error of a call whose coroutine was cancelled: it is raised nowhere."""
    if not ended.cancelled() and (error := ended.exception()) is not None:
        _log.warning("publish_failed_unseen: its coroutine was cancelled: %s", error)
