"""Polls SQS on Celery's event loop, which goes on after any answer and after none.

In kombu any error answer of SQS ends the worker, even an expired token or one throttled request.
kombu's HTTP client has no time-out: behind a forgotten connection a worker would wait for ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple

import pycurl
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.response import get_response
from kombu.asynchronous.aws.connection import AsyncHTTPSConnection
from kombu.asynchronous.http.curl import CurlClient
from kombu.transport import SQS as stock  # noqa: N811 - a module

from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle

#: Polls at a time; each queue that is consumed has one. kombu's 10 would let others wait for them.
MOST_POLLS: Final = 64


class BoundedCurlClient(CurlClient):
    """kombu's client, which gives up a request when its time is over: `HTTP 599`."""

    def _setup_request(self, curl: Any, request: Any, *args: Any, **options: Any) -> None:
        super()._setup_request(curl, request, *args, **options)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, round(1000 * request.connect_timeout))
        curl.setopt(pycurl.TIMEOUT_MS, round(1000 * request.request_timeout))


def use_bounded_client(hub: Any) -> None:
    """Give *hub* an HTTP client that has time-outs."""
    if not isinstance(getattr(hub, "_current_http_client", None), BoundedCurlClient):
        hub._current_http_client = BoundedCurlClient(hub, max_clients=MOST_POLLS)  # noqa: SLF001


_log = logging.getLogger("angzarr.transport")

#: Seconds until a queue that could not be read is asked again: doubled up to the longest, and
#: spread, so that a fleet does not come back at one moment.
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 15.0

#: Seconds beyond the long poll until SQS counts as away. kombu waits for 20 in all, which is no
#: longer than the longest poll itself.
PATIENCE: Final = 5.0

#: Seconds that SQS may take beyond a long poll to end it.
LATE: Final = 1.0
#: Seconds between two looks for room where nothing else says that there is some.
LOOKED_EVERY: Final = 1.0

_OK: Final = 200
#: SQS's errors for a queue that was deleted.
GONE: Final = frozenset({"QueueDoesNotExist", "NonExistentQueue"})


class PollRefusal(NamedTuple):
    """The answer that came instead of messages."""

    code: str
    said: str


class PollingChannel(stock.Channel):
    """kombu's channel, whose polls outlive errors."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waits: dict[str, float] = {}
        self._turned_at: dict[str, float] = {}
        #: Address of a queue → when the poll began that SQS has not answered yet.
        self._polled_at: dict[str, float] = {}
        #: Queue → the timer of its next poll, of those that are not polled for want of room.
        self._full: dict[str, Any] = {}
        self._seldom = LogThrottle()

    def asynsqs(self, queue: str | None = None) -> Any:
        """The connection that polls; it answers with a `PollRefusal` instead of raising."""
        use_bounded_client(self.hub)
        connection = super().asynsqs(queue)
        connection._on_list_ready = partial(_heard, connection)  # noqa: SLF001 - pinned by a test
        connection.get_http_connection = partial(
            AsyncHTTPSConnection,
            http_client=connection._httpclient,  # noqa: SLF001
            timeout=self.wait_time_seconds + PATIENCE,
        )
        return connection

    def _new_boto_client(self, *args: Any, config: Config | None = None, **options: Any) -> Any:
        """A client that waits for seconds, as `client-config` says or by default.

        botocore's own minutes would hold up the worker's loop, on which messages are deleted.
        """
        patient = Config(
            connect_timeout=PATIENCE,
            read_timeout=self.wait_time_seconds + PATIENCE,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        wanted = patient.merge(Config(**(self.transport_options.get("client-config") or {})))
        config = wanted if config is None else wanted.merge(config)
        return super()._new_boto_client(*args, config=config, **options)

    def _schedule_queue(self, queue: str) -> None:
        """Poll *queue*; where that fails at once, try again later."""
        self._full.pop(queue, None)
        self._turned_at[queue] = time.monotonic()
        try:
            super()._schedule_queue(queue)
        except (ClientError, BotoCoreError, *self.connection.channel_errors, OSError) as error:
            self._refused(queue, PollRefusal(code_of(error), str(error)))
            self._loop1(queue)

    def unserved(self, queue: str) -> str:
        """Say why *queue* is not polled; empty: it is its turn now and then. For probes."""
        if self.hub is None:  # the drain itself polls
            return ""
        turned_at = self._turned_at.get(queue)
        if turned_at is None:
            return "it was never polled"
        turned = time.monotonic() - turned_at
        longest = self.wait_time_seconds + PATIENCE + 1.5 * LONGEST_WAIT
        return "" if turned < longest else f"it was its turn to be polled {turned:.0f} s ago"

    def away(self) -> str:
        """Say which queues SQS does not let us read; empty: none. For probes."""
        names = ", ".join(sorted(self._waits))
        return f"SQS refuses {names}, and is asked again" if names else ""

    def seconds_polled(self, address: str) -> int:
        """For how many seconds more SQS may answer a poll of the queue at *address*; 0: none."""
        began = self._polled_at.get(address)
        if began is None:
            return 0
        until = began + float(self.wait_time_seconds) + LATE
        return max(0, ceil(until - time.monotonic()))

    def _get_from_sqs(self, queue_name: str, queue_url: str, *args: Any, **options: Any) -> Any:
        """Poll."""
        self._polled_at[queue_url] = time.monotonic()
        return super()._get_from_sqs(queue_name, queue_url, *args, **options)

    def _on_messages_ready(self, queue: str, qname: str, messages: Any) -> int:
        """Hand out *messages* and return how many they are; remember whether there were any."""
        self._polled_at.pop(queue, None)
        if isinstance(messages, PollRefusal):
            self._refused(qname, messages)
            return 0
        self._waits.pop(qname, None)
        return int(super()._on_messages_ready(queue, qname, messages))

    def _loop1(self, queue: str, messages_fetched: int | None = None) -> None:
        """Poll again: at once, after the polling interval, or after the wait of a refusal."""
        wait = self._waits.get(queue)
        if wait is not None:
            spread = 0.5 + chance()
            self.hub.call_later(wait * spread, self._schedule_queue, queue)
        elif messages_fetched or self.qos.can_consume():
            super()._loop1(queue, messages_fetched)
        else:
            self._wait_for_room(queue)

    def _wait_for_room(self, queue: str) -> None:
        """Poll *queue* when there is room; kombu would only look after the polling interval."""
        if (before := self._full.get(queue)) is not None:  # it was cancelled and is consumed anew
            before.cancel()
        pause = self.connection.polling_interval or LOOKED_EVERY
        self._full[queue] = self.hub.call_later(pause, self._schedule_queue, queue)
        if self.connection.received is not None:
            self.connection.received.wait_for_room(self)

    def poll_again(self) -> None:
        """Poll the queues that wait for room."""
        full, self._full = self._full, {}
        for queue, timer in full.items():
            timer.cancel()
            self._schedule_queue(queue)

    def _refused(self, queue: str, refusal: PollRefusal) -> None:
        self._waits[queue] = min(2 * self._waits.get(queue, FIRST_WAIT / 2), LONGEST_WAIT)
        if refusal.code in GONE:
            self.forget_address(queue)
        if self._seldom.now(queue):
            _log.error(
                "sqs_refuses: queue %s cannot be read, trying again: %s", queue, refusal.said
            )

    def forget_address(self, queue: str) -> None:
        """Have *queue* looked up, and created if need be, before it is used again."""
        if not self.predefined_queues:
            self._queue_cache.pop(self.canonical_queue_name(queue), None)


def code_of(error: BaseException | None) -> str:
    """SQS' code of *error*; the empty string if it is not SQS'."""
    return _code_in(error.response) if isinstance(error, ClientError) else ""


def _code_in(answer: Mapping[str, Any]) -> str:
    """The code in what botocore parsed, without the prefix of older protocols."""
    return str(answer.get("Error", {}).get("Code", "")).rpartition(".")[2]


def _heard(connection: Any, _parent: Any, _markers: Any, operation: str, response: Any) -> Any:
    """SQS' answer: parsed, or a `PollRefusal`."""
    try:
        model = connection.sqs_connection.meta.service_model.operation_model(operation)
        _, parsed = get_response(model, response.response)
    except Exception as error:  # noqa: BLE001 - a gateway's page, half an answer
        return PollRefusal("", f"HTTP {response.status}, which cannot be read ({error!r})")
    if response.status == _OK:
        return parsed
    code, said = _code_in(parsed), parsed.get("Error", {}).get("Message")
    return PollRefusal(code, f"{code or response.status}: {said or response.reason}")
