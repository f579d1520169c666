"""Shared by Kafka's producer and consumer of dead letters: settings, failures, forks, backlog."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable
from angzarr.runtime.failures import LogThrottle

_LOG: Final = logging.getLogger(__name__)
_SELDOM: Final = LogThrottle()
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
#: What a client says once it has failed for good; it purges what it holds then, else never.
_ENDED: Final = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001  librdkafka's names for local errors
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
    }
)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """False for what librdkafka need not say: each try to connect, and the other client's options.

    One set of options serves producer and consumer.
    """
    said = record.getMessage()
    if said.startswith("FAIL ["):
        return _SELDOM.now()
    return "property and will be ignored by this" not in said


_LOG.addFilter(_is_worth_a_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """Where the brokers are and how long to wait for them; `options` may hold secrets."""

    brokers: str
    timeout: float
    options: Mapping[str, Any] = field(repr=False)

    def settings(self, **own: Any) -> dict[str, Any]:
        """The settings for librdkafka; what the user gave wins but for what safety needs."""
        milliseconds = int(self.timeout * 1000)
        return {
            "socket.timeout.ms": max(milliseconds, 1000),
            "socket.connection.setup.timeout.ms": max(milliseconds, 1000),
            "reconnect.backoff.max.ms": 2000,
            "error_cb": lambda _error: None,
            "logger": _LOG,
            **self.options,
            "bootstrap.servers": self.brokers,
            # A topic that the broker makes would expire its letters; a producer asks for it.
            "allow.auto.create.topics": False,
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
        """The exception that says what *error* means."""
        return DeadLetterQueueUnavailable(
            f"Kafka at {self.brokers} does not take dead letters: {reason_of(error)}"
        )

    def check(self) -> None:
        """Raise ConfigurationError if librdkafka refuses the options; asks no broker."""
        if self.options:
            with creating():
                Producer(self.settings())


@contextlib.contextmanager
def creating() -> Iterator[None]:
    """Turn a setting that librdkafka refuses into ConfigurationError."""
    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        msg = f"Kafka's client refuses its settings: {reason_of(error.args[0])}"
        raise ConfigurationError(msg) from error


def reason_of(error: Any) -> str:
    """The text of *error*, on one line."""
    text = error.str() if isinstance(error, KafkaError) else str(error)
    return " ".join(text.split())[:300]


def is_fatal(error: Any) -> bool:
    """True if the client that says *error* has failed for good: it takes nothing any more.

    Only the error that `Producer.poll` raises bears confluent-kafka's flag: it raises that one
    instead of telling `error_cb`. Reports, refusals and a consumer's messages bear the code.
    """
    return isinstance(error, KafkaError) and (error.fatal() or error.code() in _ENDED)


class Owner(Protocol):
    """An object that holds a client of Kafka."""

    def held(self) -> object:
        """The client, or None."""


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

#: Seconds that all of the first letters may take to come.
_PATIENCE: Final = 3.0
#: Bytes asked for at once: one letter, however small it is.
_LITTLE: Final = 1_024


class Stretch(NamedTuple):
    """The offsets of a partition: its first, its end, and how far the group has come."""

    partition: int
    low: int
    high: int
    reached: int

    @property
    def ahead(self) -> int:
        """Offsets that the group has not committed; some may hold no letter."""
        return max(0, self.high - self.reached)


def stretches(
    cluster: KafkaCluster, consumer: Consumer, topic: str, taken: Callable[[int], int]
) -> list[Stretch]:
    """The offsets of each partition of *topic*; a topic that is missing has none.

    What lies before what *taken* says is in our hands. Ends are asked for beside the consumer,
    whose own line is busy with a fetch that waits.
    """
    admin = AdminClient(cluster.settings())
    found = admin.list_topics(topic, timeout=cluster.timeout).topics[topic].partitions
    places = [TopicPartition(topic, number) for number in found]
    if not places:
        return []
    spec: Any = OffsetSpec
    low = _offsets(admin, places, spec.earliest(), cluster.timeout)
    high = _offsets(admin, places, spec.latest(), cluster.timeout)
    committed = consumer.committed(places, timeout=cluster.timeout)
    return [
        Stretch(
            number := place.partition,
            low[number],
            high[number],
            max(low[number], place.offset, taken(number)),
        )
        for place in committed
    ]


def backlog(
    cluster: KafkaCluster, consumer: Consumer, topic: str, taken: Callable[[int], int]
) -> int:
    """The number of uncommitted offsets of *topic*; some may hold no letter."""
    return sum(one.ahead for one in stretches(cluster, consumer, topic, taken))


def oldest_at(
    cluster: KafkaCluster, group: str, topic: str, found: Iterable[Stretch]
) -> datetime | None:
    """When the first of the letters ahead was written; None: none, or it did not come.

    Reads one letter of each partition by a consumer of its own, which joins no group and commits
    nothing.
    """
    places = [TopicPartition(topic, one.partition, one.reached) for one in found if one.ahead]
    if not places:
        return None
    settings = cluster.settings(
        group_id=group,
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        auto_offset_reset="earliest",
        fetch_message_max_bytes=_LITTLE,
    )
    with closing(Consumer(settings)) as consumer:
        consumer.assign(places)
        return _first(consumer, len(places))


def _first(consumer: Consumer, partitions: int) -> datetime | None:
    times: dict[int, datetime | None] = {}
    until = time.monotonic() + _PATIENCE
    while len(times) < partitions and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is None or message.error():
            continue
        times.setdefault(message.partition() or 0, written_at(*message.timestamp()))
        consumer.pause([TopicPartition(message.topic() or "", message.partition() or 0)])
    return min((at for at in times.values() if at is not None), default=None)


def written_at(kind: int, milliseconds: int) -> datetime | None:
    """When a record was written; None: it says nothing, or a time that no calendar has.

    Its publisher says so, and may say anything: microseconds, or the largest number.
    """
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _offsets(
    admin: Any, places: Sequence[TopicPartition], spec: Any, timeout: float
) -> dict[int, int]:
    asked = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=timeout)
    return {place.partition: future.result().offset for place, future in asked.items()}
