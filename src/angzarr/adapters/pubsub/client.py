"""Pub/Sub's clients as the rest of this folder needs them, and what their failures mean.

gRPC survives a fork only where it was told so before it began: this module says it when imported.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud.pubsub_v1 import PublisherClient
from google.cloud.pubsub_v1.types import BatchSettings, PublisherOptions
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from angzarr.adapters.pubsub.leasing import LeasingClient
from angzarr.errors import DeadLetterQueueUnavailable

#: What the clients raise when Google or the network fails.
FAILURES: Final = (exceptions.GoogleAPIError, GoogleAuthError)
#: What says that nobody answered, not that somebody refused.
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
    # A stream waits for hours: only a ping finds out that nobody is at the other end of a
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
class Service:
    """Where Pub/Sub is and how long to wait for it; `options` may hold secrets."""

    project: str
    endpoint: str | None
    timeout: float
    ordering: bool
    options: Mapping[str, Any] = field(repr=False)

    def publisher(self) -> PublisherClient:
        """Return a client that publishes each letter once: who puts letters tries again."""
        options = PublisherOptions(
            enable_message_ordering=self.ordering, retry=None, timeout=self.timeout
        )
        return PublisherClient(
            publisher_options=options,
            batch_settings=_BATCH,
            **self._shared(_PublisherTransport),
        )

    def subscriber(self) -> LeasingClient:
        """Return a client that receives."""
        return LeasingClient(self.timeout, **self._shared(_SubscriberTransport))

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        """Return the full name of a subscription."""
        return f"projects/{self.project}/subscriptions/{name}"

    @property
    def once(self) -> dict[str, Any]:
        """What every request is bounded by."""
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

    def __init__(self, service: Service) -> None:
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
    """Return the exception that says *why* no letters are put or received."""
    return DeadLetterQueueUnavailable(f"Pub/Sub does not take dead letters: {why}")


def reason_of(error: BaseException) -> str:
    """Return what *error* says, on one line; client-side texts may hold addresses, so no text."""
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
