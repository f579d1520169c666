"""What Kafka's producer and consumer of dead letters share: settings, topics, failures."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable

_LOG: Final = logging.getLogger(__name__)
#: Letters are kept until somebody is done with them, not for Kafka's seven days.
_TOPIC_SETTINGS: Final = {"retention.ms": "-1", "cleanup.policy": "delete"}
#: What says that no broker answered, not that one refused.
AWAY: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001  librdkafka's names for local errors
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where the brokers are and how long to wait for them; `options` may hold secrets."""

    brokers: str
    timeout: float
    options: Mapping[str, Any] = field(repr=False)

    def settings(self, **own: Any) -> dict[str, Any]:
        """Return librdkafka's settings; what the user gave wins but for what safety needs."""
        milliseconds = int(self.timeout * 1000)
        return {
            "socket.timeout.ms": max(milliseconds, 1000),
            "socket.connection.setup.timeout.ms": max(milliseconds, 1000),
            "reconnect.backoff.max.ms": 2000,
            "error_cb": lambda _error: None,
            "logger": _LOG,
            **self.options,
            "bootstrap.servers": self.brokers,
            **{name.replace("_", "."): value for name, value in own.items()},
        }

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Turn a failure of the client into DeadLetterQueueUnavailable with one sentence."""
        try:
            yield
        except KafkaException as error:
            raise self.unavailable(error.args[0]) from error

    def unavailable(self, error: Any) -> DeadLetterQueueUnavailable:
        """Return the exception that says what *error* means."""
        return DeadLetterQueueUnavailable(
            f"Kafka at {self.brokers} does not take dead letters: {reason_of(error)}"
        )


@contextlib.contextmanager
def creating() -> Iterator[None]:
    """Turn a setting that librdkafka refuses into ConfigurationError."""
    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        msg = f"Kafka's client refuses its settings: {reason_of(error.args[0])}"
        raise ConfigurationError(msg) from error


def reason_of(error: Any) -> str:
    """Return what *error* says, on one line."""
    text = error.str() if isinstance(error, KafkaError) else str(error)
    return " ".join(text.split())[:300]


class Owner(Protocol):
    """What holds a client of Kafka's."""

    def held(self) -> object:
        """Return the client, or None."""


_OWNERS: Final[WeakSet[Owner]] = WeakSet()


def own(owner: Owner) -> None:
    """See to it that no forked child frees what *owner* holds: it would crash or hang.

    Freeing a client waits for its threads, which a fork does not copy.
    """
    _OWNERS.add(owner)


def _never_free_inherited() -> None:
    for owner in _OWNERS:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner.held()))


os.register_at_fork(after_in_child=_never_free_inherited)


class Topics:
    """Creates topics that are missing; existing ones are taken as they are."""

    def __init__(self, cluster: Cluster, *, partitions: int, replication: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._replication = replication
        self._known: set[str] = set()

    def ensure(self, names: set[str], client: Producer) -> dict[str, str]:
        """Return for each of *names* that could not be created why; raises KafkaException."""
        if not names - self._known:
            return {}
        self._known |= client.list_topics(timeout=self._cluster.timeout).topics.keys()
        missing = sorted(names - self._known)
        return self._create(missing) if missing else {}

    def forget(self) -> None:
        """Look again when a topic is next needed."""
        self._known.clear()

    def _create(self, names: list[str]) -> dict[str, str]:
        admin = AdminClient(self._cluster.settings())
        new = [
            NewTopic(
                name,
                num_partitions=self._partitions,
                replication_factor=self._replication,
                config=_TOPIC_SETTINGS,
            )
            for name in names
        ]
        bound = self._cluster.timeout
        created = admin.create_topics(new, operation_timeout=bound, request_timeout=bound)
        refused = {name: self._refusal(future) for name, future in created.items()}
        self._known |= {name for name, why in refused.items() if why is None}
        return {name: why for name, why in refused.items() if why is not None}

    def _refusal(self, created: Any) -> str | None:
        try:
            created.result()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return None
            return f"Kafka refused to create its topic: {reason_of(reason)}"
        return None
