"""What Kafka's producer and consumer of dead letters share: settings, failures, forks."""

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

from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable
from angzarr.runtime.log_throttle import LogThrottle

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
    """Tell what librdkafka need not say: each try to connect, and options of the other client.

    One set of options serves producer and consumer.
    """
    said = record.getMessage()
    if said.startswith("FAIL ["):
        return _SELDOM.now()
    return "property and will be ignored by this" not in said


_LOG.addFilter(_is_worth_a_line)


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
        """Return the exception that says what *error* means."""
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
    """Return what *error* says, on one line."""
    text = error.str() if isinstance(error, KafkaError) else str(error)
    return " ".join(text.split())[:300]


def is_fatal(error: Any) -> bool:
    """Tell whether the client that says *error* has failed for good: it takes nothing any more.

    Only the error that `Producer.poll` raises bears confluent-kafka's flag: it raises that one
    instead of telling `error_cb`. Reports, refusals and a consumer's messages bear the code.
    """
    return isinstance(error, KafkaError) and (error.fatal() or error.code() in _ENDED)


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
