"""The thread that renews leases: made when there are some, gone when there are none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger(__name__)


class LeaseRenewal:
    """Calls *renew*, which says in how many seconds again, None: not until `begin`.

    A failure that *renew* does not know is logged, and it is called again after *pause* seconds.
    """

    def __init__(self, renew: Callable[[], float | None], pause: float) -> None:
        self._renew = renew
        self._pause = pause
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._wanted = False

    def begin(self) -> None:
        """See to it that *renew* is called from now on."""
        with self._lock:
            self._wanted = True
            if self._thread is not None:
                return
            thread = threading.Thread(
                target=self._run, args=(self._stop,), name="angzarr-sqs-leases", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads: the letters come again, which is harmless
                return
            self._thread = thread

    def stop(self, patience: float) -> None:
        """End the thread, waiting *patience* seconds for a call that is under way."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
            self._stop = threading.Event()
        if thread is not None:
            thread.join(patience)

    def _run(self, stop: threading.Event) -> None:
        wait: float | None = 0.0
        while not stop.wait(wait):
            self._wanted = False
            wait = self._called()
            if wait is None:
                if self._is_over(stop):
                    return
                wait = 0.0

    def _called(self) -> float | None:
        try:
            return self._renew()
        except Exception:  # noqa: BLE001 - the leases of other letters must not end with it
            _LOG.exception("letter_leases_not_renewed: trying again")
            return self._pause

    def _is_over(self, stop: threading.Event) -> bool:
        """Tell whether nobody called `begin` meanwhile; the next call then starts a thread."""
        with self._lock:
            if stop.is_set():
                return True
            if not self._wanted:
                self._thread = None
            return not self._wanted
