"""Processes: values that each process makes once, threads that work in turns, and safe forks.

Connections, loops and threads do not survive a fork: a child must not use its parent's.

A forked child has one thread, but all locks of its parent's threads, held as they were. If one of
these threads was importing a module, that module stays locked in the child: an import of it hangs,
and its slot and message are lost until the worker ends. CPython renews its global import lock in a
child, but not the lock of each module (the same hang: iloveitaly/celery-healthcheck#45). So `guard`
lets a fork wait for imports.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - first: see `guard`
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib import _bootstrap  # where the locks of modules are
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """Holds the value of this process."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None
        self._lock = threading.Lock()
        # Another thread may hold the lock while this one forks; it would never be let go.
        renew = weakref.WeakMethod(self._renew_lock)
        os.register_at_fork(after_in_child=lambda: (alive := renew()) and alive())

    def get(self) -> T:
        """The value, made now if this process has none."""
        if (made := self.made()) is not None:
            return made
        with self._lock:
            if (made := self.made()) is None:
                made = self._make()
                self._made = (os.getpid(), made)
            return made

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Forget its object until the block is left; users of the object hold it still.

        An object made meanwhile is closed by its user, and forgotten.
        """
        with self._lock:
            before, self._made = self._made, None
        try:
            yield
        finally:
            with self._lock:
                self._made = before

    def made(self) -> T | None:
        """The value if this process made one."""
        made = self._made
        return made[1] if made is not None and made[0] == os.getpid() else None

    def forget(self) -> T | None:
        """Forget the value that this process made, and return it."""
        with self._lock:
            made = self.made()
            self._made = None
            return made

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


_log = logging.getLogger("angzarr.worker")

#: Seconds that a fork waits for imports under way: a large client library takes one or two.
PATIENCE: Final = 10.0
_LOOK_EVERY: Final = 0.001


def wait_for_imports(patience: float = PATIENCE) -> bool:
    """Wait until no other thread imports; False if one still does after *patience* seconds."""
    deadline = time.monotonic() + patience
    while _others_import():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _others_import() -> bool:
    locks = [alive() for alive in list(getattr(_bootstrap, "_module_locks", {}).values())]
    ours = (None, threading.get_ident())
    return any(lock is not None and lock.owner not in ours for lock in locks)


def _before() -> None:
    if not wait_for_imports():
        _log.error(
            "forked_amid_import: another thread has imported a module for %g s; should the new"
            " process need that module it will hang", PATIENCE,
        )  # fmt: skip


@cache
def guard() -> None:
    """Guard all forks of this process from now on; hooks that are registered later run before.

    In a child they run in the order in which they were registered. OpenTelemetry's SDK uses a pool
    of threads there, whose lock is free again only once the hook of its module has run: that
    module is imported here, before most can set up an SDK.
    """
    os.register_at_fork(before=_before)


class Turns(Protocol):
    """Work that is done in turns."""

    def turn(self) -> timedelta:
        """Do some work; return how long to wait before the next turn. Never raises."""

    def leave(self) -> None:
        """Finish, after the last turn."""


class PeriodicThread:
    """Takes turns until the process ends; children that are forked meanwhile have none.

    *make* is given what tells whether to stop. A stop waits for the turn that is under way, but no
    longer than *patience*.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[], bool]], Turns],
        patience: timedelta = timedelta(seconds=2),
    ) -> None:
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._patience = patience
        self._turns = make(self._ended.is_set)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        atexit.register(self.end)

    def turn(self) -> None:
        """Take one turn here and now, for who does not start the thread."""
        self._turns.turn()

    def end(self) -> None:
        """Take no more turns; one that takes too long is left to end with the process."""
        if self._ended.is_set() or os.getpid() != self._pid:
            return
        self._ended.set()
        if self._thread.ident is None:  # never started: turns were taken by hand, if at all
            self._turns.leave()
            return
        atexit.unregister(self.end)
        self._thread.join(self._patience.total_seconds())

    def _run(self) -> None:
        wait = timedelta(0)
        while not self._ended.wait(wait.total_seconds()):
            wait = self._turns.turn()
        self._turns.leave()
