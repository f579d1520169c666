"""The HTTP client by which Celery's event loop polls SQS, with time-outs.

kombu's has none, whatever its requests say: behind a connection that was forgotten on the way, a
worker would wait for its next message for ever.
"""

from __future__ import annotations

from typing import Any, Final

import pycurl
from kombu.asynchronous.http.curl import CurlClient

#: Polls at a time; each queue that is consumed has one. kombu's 10 would let others wait for them.
MOST_POLLS: Final = 64


class PatientClient(CurlClient):
    """kombu's client, which gives up a request when its time is over: `HTTP 599`."""

    def _setup_request(self, curl: Any, request: Any, *args: Any, **options: Any) -> None:
        super()._setup_request(curl, request, *args, **options)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, round(1000 * request.connect_timeout))
        curl.setopt(pycurl.TIMEOUT_MS, round(1000 * request.request_timeout))


def give(hub: Any) -> None:
    """Let whoever asks *hub* for its HTTP client have a patient one."""
    if not isinstance(getattr(hub, "_current_http_client", None), PatientClient):
        hub._current_http_client = PatientClient(hub, max_clients=MOST_POLLS)  # noqa: SLF001
