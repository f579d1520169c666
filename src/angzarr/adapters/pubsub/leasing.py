"""Google's receiving client, whose threads outlive an outage and end quietly when it is closed."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from google.api_core.exceptions import Cancelled
from google.cloud.pubsub_v1 import SubscriberClient

#: Seconds between two openings of one stream: after five at once Google's client sleeps for ten.
_PAUSE: Final = 2.0


class LeasingClient(SubscriberClient):
    """Streams letters and renews their leases; *patience* bounds a renewal, in seconds."""

    def __init__(self, patience: float, **options: Any) -> None:
        super().__init__(**options)
        self._patience = patience
        self._ending = threading.Event()
        self._opened_at: dict[str, float] = {}

    def modify_ack_deadline(self, *args: Any, **kwargs: Any) -> None:
        """Renew or end leases, once; raises GoogleAPICallError.

        Google's way is to try for minutes and then to end the thread that renews.
        """
        bounded = {"retry": None, "timeout": self._patience}
        try:
            super().modify_ack_deadline(*args, **(bounded | kwargs))
        except ValueError as error:  # gRPC's word for a channel that was closed meanwhile
            raise Cancelled(str(error)) from error

    def streaming_pull(self, *args: Any, **kwargs: Any) -> Any:
        """Open a stream, not too soon after it was opened before."""
        if self._ending.wait(self._wait(str(kwargs.get("metadata")))):
            return _Call(None)
        try:
            return _Call(super().streaming_pull(*args, **kwargs))
        except ValueError:  # the same: whoever opens a stream again prints all that is raised
            return _Call(None)

    def end(self) -> None:
        """Open no more streams; what waits to do so goes on at once."""
        self._ending.set()

    def _wait(self, which: str) -> float:
        now = time.monotonic()
        at = max(now, self._opened_at.get(which, now - _PAUSE) + _PAUSE)
        self._opened_at[which] = at
        return at - now


class _Call:
    """A stream whose end is noticed by those who read and write; None is one that has ended.

    Google's client would notice it in gRPC's thread too, and wait there before it opens the next:
    nobody could close the channel meanwhile.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    def add_done_callback(self, callback: Any) -> None:
        """Call nobody."""

    def is_active(self) -> bool:
        return self._call is not None and bool(self._call.is_active())

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def __next__(self) -> Any:
        if self._call is None:
            raise Cancelled("closed")
        return next(self._call)
