"""OncePerProcess: a value that every process makes for itself, once, whatever thread asks first.

Connections, loops and threads do not survive a fork: a prefork child must not use its parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

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
