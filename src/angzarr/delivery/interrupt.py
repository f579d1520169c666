"""Cut: end a handler that still runs when its worker must go, and nothing but a handler (16).

Signals strike the main thread, where prefork children and solo workers run handlers. What strikes
before the handler waits for it; what strikes after it comes too late: the outcome is being made
true, and is let be.
"""

from __future__ import annotations

import threading
from types import TracebackType


class Cut(BaseException):
    """Raised inside a handler whose worker's grace has ended; no ``except Exception`` takes it."""


class Blade:
    """Cuts the handler that runs on this process's main thread."""

    def __init__(self) -> None:
        self._inside = False
        self._raised = False

    @property
    def inside(self) -> bool:
        """Whether the main thread is in a handler."""
        return self._inside

    def strike(self) -> None:
        """Cut the handler that runs here, or the next one; call it from a signal handler."""
        self._raised = True
        if self._inside:
            self._inside = False  # once: what the handler does to clean up is let be
            raise Cut

    def sheathe(self) -> None:
        """Forget a strike: another worker begins in this process."""
        self._inside = self._raised = False

    def __enter__(self) -> None:
        """Begin a handler; raises Cut if there was a strike already."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._raised:
            raise Cut
        self._inside = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End a handler: from here on its outcome is made true."""
        if threading.current_thread() is threading.main_thread():
            self._inside = False


#: A signal reaches a process, not an app: there is one for all.
BLADE = Blade()
