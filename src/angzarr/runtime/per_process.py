"""OncePerProcess: a value that every process makes for itself, once, whatever thread asks first.

Connections, loops and threads do not survive a fork: a prefork child must not use its parent's.

Forks: none while another thread imports a module.

A forked child has one thread, but all locks of its parent's threads, held as they were. Where one
of them was in the middle of an import, that module stays locked in the child, and whoever imports
it there waits for ever: a slot is lost, and its message with it until the worker ends. CPython
renews its global import lock in a child, but not the lock of each module (the same hang, seen by
others: iloveitaly/celery-healthcheck#45).
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - first: see `guard`
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import _bootstrap  # where the locks of modules are
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """Holds the value of this process."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None
        self._lock = threading.Lock()
        # Another thread may hold the lock while this one forks; nobody would ever let it go.
        renew = weakref.WeakMethod(self._renew_lock)
        os.register_at_fork(after_in_child=lambda: (alive := renew()) and alive())

    def get(self) -> T:
        """Return the value, made now if this process has none."""
        if (made := self.made()) is not None:
            return made
        with self._lock:
            if (made := self.made()) is None:
                made = self._make()
                self._made = (os.getpid(), made)
            return made

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Be as if it had made none, until the block is left; whoever holds it holds it still.

        What is made meanwhile is closed by who made it, and forgotten.
        """
        with self._lock:
            before, self._made = self._made, None
        try:
            yield
        finally:
            with self._lock:
                self._made = before

    def made(self) -> T | None:
        """Return the value if this process made one."""
        made = self._made
        return made[1] if made is not None and made[0] == os.getpid() else None

    def forget(self) -> T | None:
        """Return the value that this process made, and make a new one when asked again."""
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
    """Return once no other thread imports; False if one still does after *patience* seconds."""
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
