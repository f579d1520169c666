"""Google's Pub/Sub clients, the meaning of their failures, and forks.

gRPC survives a fork only if it was configured before it began; importing this module does that. It
prepares a child only while no thread is inside a call, so no fork happens while this process waits
for an answer. A child of a process that streams letters raises an error instead. The threads of
Google's receiving client are made to outlive an outage and to end quietly on close.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

from google.api_core import exceptions
from google.api_core.exceptions import Cancelled
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
from google.cloud.pubsub_v1.types import BatchSettings, PublisherOptions
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from angzarr.errors import DeadLetterQueueUnavailable

#: Seconds that a fork waits for calls under way: longer than any of them takes by default.
PATIENCE: Final = 10.0
#: Seconds in which a thread has left gRPC for good after its answer.
_LEAVING: Final = 0.02


class Calls:
    """The calls that this process has under way; safe from any thread."""

    def __init__(self, *, unfit: bool = False) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._streams = 0
        self._forking = False
        self._ended_at = float("-inf")
        self._unfit = unfit

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Let no fork happen meanwhile; raises DeadLetterQueueUnavailable in an unfit child."""
        if self._unfit:
            raise DeadLetterQueueUnavailable(
                "Pub/Sub cannot be used in this process, which was forked while its parent"
                " received letters or waited for an answer; start it anew"
            )
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._ended_at = time.monotonic()
                self._changed.notify_all()

    def stream(self, change: int) -> None:
        """Note that so many streams more, or fewer, are open."""
        with self._changed:
            self._streams += change

    def before_fork(self) -> None:
        """Wait for what is under way, and hold up what would begin."""
        self._changed.acquire()
        self._forking = True
        self._changed.wait_for(lambda: not self._count, PATIENCE)
        time.sleep(max(0.0, min(_LEAVING, self._ended_at + _LEAVING - time.monotonic())))

    def after_in_parent(self) -> None:
        """Let calls begin again."""
        self._forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew: the parent's threads and their calls do not exist here."""
        self.__init__(unfit=self._unfit or bool(self._count or self._streams))  # type: ignore[misc]


#: Of this process.
CALLS: Final = Calls()
os.register_at_fork(
    before=CALLS.before_fork,
    after_in_parent=CALLS.after_in_parent,
    after_in_child=CALLS.after_in_child,
)


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
            return _ReceivingCall(None)
        try:
            return _ReceivingCall(super().streaming_pull(*args, **kwargs))
        except ValueError:  # the same: reopening a stream prints all that is raised
            return _ReceivingCall(None)

    def end(self) -> None:
        """Open no more streams; what waits to do so goes on at once."""
        self._ending.set()

    def _wait(self, which: str) -> float:
        now = time.monotonic()
        at = max(now, self._opened_at.get(which, now - _PAUSE) + _PAUSE)
        self._opened_at[which] = at
        return at - now


class _ReceivingCall:
    """A stream whose end is noticed by those who read and write; None is one that has ended.

    Google's client would notice it in gRPC's thread too, and wait there before it opens the next:
    the channel could not be closed meanwhile.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    def add_done_callback(self, callback: Any) -> None:
        """Call no handler."""

    def is_active(self) -> bool:
        return self._call is not None and bool(self._call.is_active())

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def __next__(self) -> Any:
        if self._call is None:
            raise Cancelled("closed")
        return next(self._call)


#: What the clients raise when Google or the network fails.
FAILURES: Final = (exceptions.GoogleAPIError, GoogleAuthError)
#: Errors of a missing answer, not of a refusal.
AWAY: Final = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.RetryError,
    exceptions.Cancelled,
    GoogleAuthError,
)
#: Messages and bytes of them that one request carries; Google's limit is 1,000 and 10 MB.
_BATCH: Final = BatchSettings(max_messages=100, max_bytes=5_000_000, max_latency=0.005)
#: What gRPC's connections have besides what Google's client gives them.
CHANNEL: Final = {
    # It would let up to two minutes go by before it connects again after a long outage.
    "grpc.max_reconnect_backoff_ms": 5_000,
    # A stream waits for hours: only a ping finds out that the peer is gone at the end of a
    # connection on which TCP acknowledges what is sent. Google allows one each half minute.
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 15_000,
    # For the answer to a ping of its own it would wait a minute, and send no other meanwhile.
    "grpc.http2.ping_timeout_ms": 15_000,
    # Else it would send two pings, and no more until there is data.
    "grpc.http2.max_pings_without_data": 0,
}


class _PublisherTransport(PublisherGrpcTransport):
    """Google's, soon back after an outage."""

    @classmethod
    def create_channel(cls, *args: Any, options: Any = (), **kwargs: Any) -> Any:
        return super().create_channel(*args, options=_with_ours(options), **kwargs)


class _SubscriberTransport(SubscriberGrpcTransport):
    """Google's, soon back after an outage."""

    @classmethod
    def create_channel(cls, *args: Any, options: Any = (), **kwargs: Any) -> Any:
        return super().create_channel(*args, options=_with_ours(options), **kwargs)


def _with_ours(options: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return list({**dict(options), **CHANNEL}.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubService:
    """Where Pub/Sub is and how long to wait for it; `options` may hold secrets."""

    project: str
    endpoint: str | None
    timeout: float
    ordering: bool
    options: Mapping[str, Any] = field(repr=False)

    def publisher(self) -> PublisherClient:
        """A client that publishes each letter once: who puts letters tries again."""
        options = PublisherOptions(
            enable_message_ordering=self.ordering, retry=None, timeout=self.timeout
        )
        return PublisherClient(
            publisher_options=options,
            batch_settings=_BATCH,
            **self._shared(_PublisherTransport),
        )

    def subscriber(self) -> LeasingClient:
        """A client that receives."""
        return LeasingClient(self.timeout, **self._shared(_SubscriberTransport))

    def topic(self, name: str) -> str:
        """The full name of a topic."""
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        """The full name of a subscription."""
        return f"projects/{self.project}/subscriptions/{name}"

    @property
    def once(self) -> dict[str, Any]:
        """The bounds of every request."""
        return {"retry": None, "timeout": self.timeout}

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Turn a failure of the client into DeadLetterQueueUnavailable with one sentence."""
        try:
            yield
        except FAILURES as error:
            raise unavailable(reason_of(error)) from error

    def _shared(self, transport: Any) -> dict[str, Any]:
        where = {"client_options": {"api_endpoint": self.endpoint}} if self.endpoint else {}
        return {"transport": transport, **where, **self.options}


class Clients:
    """The clients of one process, each made when first needed; safe from any thread."""

    def __init__(self, service: PubSubService) -> None:
        self.service = service
        self._lock = threading.Lock()
        self._publisher: PublisherClient | None = None
        self._subscriber: LeasingClient | None = None

    @property
    def publisher(self) -> PublisherClient:
        """The client that publishes."""
        with self._lock:
            if self._publisher is None:
                self._publisher = self.service.publisher()
            return self._publisher

    @property
    def subscriber(self) -> LeasingClient:
        """The client that receives."""
        with self._lock:
            if self._subscriber is None:
                self._subscriber = self.service.subscriber()
            return self._subscriber

    def close(self) -> None:
        """Close the connections; what is asked for later opens new ones."""
        with self._lock:
            publisher, self._publisher = self._publisher, None
            subscriber, self._subscriber = self._subscriber, None
        if publisher:
            publisher.stop()
            publisher.transport.close()
        if subscriber:
            subscriber.close()


def unavailable(why: str) -> DeadLetterQueueUnavailable:
    """The exception that says *why* no letters are put or received."""
    return DeadLetterQueueUnavailable(f"Pub/Sub does not take dead letters: {why}")


def reason_of(error: BaseException) -> str:
    """The text of *error*, on one line; client-side texts may hold addresses, so no text."""
    if isinstance(error, DefaultCredentialsError):
        return (
            "no Google credentials were found; set GOOGLE_APPLICATION_CREDENTIALS,"
            " run `gcloud auth application-default login`, or give the machine a service account"
        )
    if isinstance(error, exceptions.GoogleAPICallError) and not isinstance(error, AWAY):
        said = " ".join(str(error.message).split())[:200]
        return f"{type(error).__name__} {said}{_CURES.get(type(error), '')}".strip()
    return f"no answer ({type(error).__name__})"


_CURES: Final[Mapping[type, str]] = {
    exceptions.PermissionDenied: (
        "; it needs roles/pubsub.editor, or where topics and subscriptions are made beforehand"
        " (dlq.create_missing: false) the roles publisher, subscriber and viewer"
    ),
}
