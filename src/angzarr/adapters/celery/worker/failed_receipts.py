"""Receipts: what becomes of a message that this process failed to take (D7).

Only what is known to be the message's fault makes it a letter. The rest goes back: the process may
lack threads, memory or files, or it may have a bug that one message brings out.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from angzarr.adapters.celery.message_check import check_message
from angzarr.errors import text_of
from angzarr.runtime.failure_counts import FailureCounts
from angzarr.runtime.log_throttle import Seldom
from angzarr.runtime.machine_faults import is_machine_fault

_log = logging.getLogger("angzarr.worker")

#: Seconds until a message that went back is taken up again: at first, and at most. While all fail
#: it doubles, so that no worker turns in a hot loop (trap 5). It lasts before it doubles again: a
#: burst of failures is one.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
#: How often one message may bring out an error that no fault of the machine explains.
MOST_TRIES: Final = 3
#: Codes of letters: of a message that is malformed, and of one that no try could take.
MALFORMED, NOT_TAKEN = "INVALID_TASK", "NOT_TAKEN"
#: Messages whose tries are remembered.
_REMEMBERED: Final = 1000


class Receipts:
    """One worker's, on its parent's loop; it outlives connections."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tries = FailureCounts(_REMEMBERED)
        self._pause = FIRST_PAUSE
        #: Until when who fails shares the pause; None: none failed since one was taken.
        self._shared_until: float | None = None
        self._seldom = Seldom(monotonic=monotonic)
        #: How many messages could not be taken since one was, and why not the last of them.
        self.failures = 0
        self.fault = ""
        self._since = self._last = 0.0

    def succeed(self) -> None:
        """Take note that a message was taken, after some were not."""
        self.failures, self.fault, self._pause = 0, "", FIRST_PAUSE
        self._shared_until = None

    def lasts(self) -> float | None:
        """Return for how many seconds no message could be taken; None: the last one could.

        What failed comes again; once it has not for long, another worker took it.
        """
        now = self._monotonic()
        if not self.failures or now - self._last > 2 * LONGEST_PAUSE:
            return None
        return now - self._since

    def fault_of(self, message: Any, error: Exception) -> tuple[str, Exception] | None:
        """Return the code and the reason of the letter that *message* becomes for *error*.

        Its shape proves that it is at fault, and is the reason: Celery stumbles wherever it looks
        first. Or it failed `MOST_TRIES` times while the machine lacked nothing. None: it is not
        known to be at fault, and goes back.
        """
        if is_machine_fault(error):
            return None
        try:
            check_message(message)
        except Exception as malformed:  # noqa: BLE001 - a hostile message fails in any way
            return None if is_machine_fault(malformed) else (MALFORMED, malformed)
        tries = self._tries.add(_identity(message))
        return (NOT_TAKEN, error) if tries >= MOST_TRIES else None

    def fail(self, error: Exception, what: str) -> float:
        """Take note of *error*, and return after how many seconds *what* goes back."""
        now = self._monotonic()
        if self.lasts() is None:
            self._since = now
        self._last, self.failures = now, self.failures + 1
        self.fault = f"{type(error).__name__}: {text_of(error)}"[:200]
        if self._seldom.now(self.fault):
            _log.critical(
                "message_not_taken: %s goes back to the broker, and so do others: %s: %s",
                what, self.fault, _cure(error), exc_info=None if is_machine_fault(error) else error,
            )  # fmt: skip
        return self._pause_at(now)

    def _pause_at(self, now: float) -> float:
        if self._shared_until is None or now >= self._shared_until:
            if self._shared_until is not None:
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._shared_until = now + self._pause
        return self._pause


def _cure(error: Exception) -> str:
    if is_machine_fault(error):
        return "raise this worker's limits (pids, memory, open files), or lower its concurrency"
    return "this is a bug; the message becomes a letter when it fails again and again"


def _identity(message: Any) -> bytes:
    body = message.body
    raw = body if isinstance(body, bytes) else repr(body).encode("utf-8", "backslashreplace")
    headers = message.headers if isinstance(message.headers, dict) else {}
    return hashlib.sha256(repr(headers.get("id")).encode("utf-8", "replace") + raw).digest()
