"""Writes letters to Kafka: acks=all, idempotent, each one's delivery report awaited."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from angzarr.adapters.kafka.client import AWAY, KafkaCluster, creating, is_fatal, own, reason_of
from angzarr.adapters.kafka.topics import KafkaTopics
from angzarr.dead_letters.codec import MAX_LETTER_BYTES, Form, encode, partition_key
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Outgoing, TooLarge
from angzarr.runtime.failures import LogThrottle

_LOG: Final = logging.getLogger(__name__)
#: The header that names the letter's form.
CONTENT_TYPE: Final = "content-type"
#: Seconds beyond the client's own time-out that a delivery report may take.
_GRACE: Final = 1.0
#: May mean that the topic was deleted: the client waits for it until time is up.
_MAYBE_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  librdkafka's names for local errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    }
)


class LetterProducer:
    """A producer of one process, made when first needed; safe from any thread."""

    def __init__(self, cluster: KafkaCluster, topics: KafkaTopics, form: Form) -> None:
        self._cluster = cluster
        self._topics = topics
        self._form = form
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._seldom = LogThrottle()
        own(self)

    def produce(self, letters: Sequence[Outgoing]) -> list[str | None]:
        """For each letter None once all in-sync replicas have it, else why not."""
        errors = self._errors(letters)
        ended = [at for at, error in enumerate(errors) if is_fatal(error)]
        if ended:  # at worst one is written twice, which is harmless
            again = self._errors([letters[at] for at in ended])
            for at, error in zip(ended, again, strict=True):
                errors[at] = error
        return self._answers(letters, errors)

    def client(self) -> Producer:
        """The producer."""
        with self._lock:
            if self._producer is None:
                settings = self._cluster.settings(
                    acks="all",
                    enable_idempotence=True,
                    # A partition new to this producer takes any first sequence number, and the
                    # client holds a later batch's success for that of an earlier one: with two
                    # under way a refused first batch is lost as written (KAFKA-15591).
                    max_in_flight_requests_per_connection=1,
                    delivery_timeout_ms=int(self._cluster.timeout * 1000),
                    # It does not wait: a flush sends at once. A batch put together is one
                    # request for each partition then, and not several that follow each other.
                    linger_ms=5,
                    # What is smaller is the broker's to refuse: its topics differ.
                    message_max_bytes=MAX_LETTER_BYTES,
                )
                with creating():
                    self._producer = Producer(settings)
            return self._producer

    def close(self) -> None:
        """Let go of the producer; nothing is in flight outside `produce`."""
        with self._lock:
            self._producer = None

    def held(self) -> object:
        """The producer, if there is one."""
        return self._producer

    def _errors(self, letters: Sequence[Outgoing]) -> list[Any]:
        """For each letter what the client has against it, None once it is written."""
        producer = self.client()
        refused = self._topics.ensure({queue_name(one.domain) for one in letters}, producer)
        reports: dict[int, Any] = {}
        for at, letter in enumerate(letters):
            if why := refused.get(queue_name(letter.domain)):
                reports[at] = why
            else:
                self._send(producer, letter, functools.partial(reports.__setitem__, at))
        self._wait(producer, reports, len(letters))
        silence = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001  its name for it
        errors = [reports.get(at, silence) for at in range(len(letters))]
        if fatal := next(filter(is_fatal, errors), None):
            self._replace(producer, fatal)
        return errors

    def _send(self, producer: Producer, letter: Outgoing, report: Any) -> None:
        encoded = encode(letter, self._form)
        key = partition_key(letter).encode("utf-8", "surrogatepass") or None
        try:
            producer.produce(
                queue_name(letter.domain),
                value=encoded.body,
                key=key,
                headers=[(CONTENT_TYPE, encoded.content_type.encode())],
                on_delivery=lambda error, _message: report(error),
            )
        except BufferError:
            report("the queue of Kafka's client is full")
        except KafkaException as error:
            report(error.args[0])

    def _wait(self, producer: Producer, reports: dict[int, Any], count: int) -> None:
        deadline = time.monotonic() + self._cluster.timeout + _GRACE
        while len(reports) < count and time.monotonic() < deadline:
            try:
                producer.flush(0.05)  # unlike `poll` it sends at once what lingers for company
            except KafkaException as error:
                if not is_fatal(error.args[0]):
                    raise
                self._replace(producer, error.args[0])
                for at in range(count):  # no answer to what is under way can be awaited now
                    reports.setdefault(at, error.args[0])

    def _replace(self, ended: Producer, error: KafkaError) -> None:
        """Let go of *ended*, which would refuse everything for ever; another thread may have."""
        with self._lock:
            if self._producer is not ended:
                return
            self._producer = None
        if self._seldom.now():
            _LOG.warning(
                "kafka_client_replaced: the old one takes no more dead letters: %s",
                reason_of(error),
            )

    def _answers(self, letters: Sequence[Outgoing], errors: list[Any]) -> list[str | None]:
        codes = [error.code() for error in errors if isinstance(error, KafkaError)]
        if not _MAYBE_GONE.isdisjoint(codes):
            self._topics.forget()
        if len(codes) == len(errors) and set(codes) <= AWAY:
            raise self._cluster.unavailable(errors[0])
        return [
            self._alone(letter) if _shared(error, letters) else _answer(error)
            for letter, error in zip(letters, errors, strict=True)
        ]

    def _alone(self, letter: Outgoing) -> str | None:
        return self.produce([letter])[0]


def _shared(error: Any, letters: Sequence[Outgoing]) -> bool:
    """True if a letter may have been refused for the size of the batch it was in."""
    return _is_size(error) and len(letters) > 1


def _is_size(error: Any) -> bool:
    return isinstance(error, KafkaError) and error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def _answer(error: Any) -> str | None:
    if error is None:
        return None
    told = f"Kafka refused it: {reason_of(error)}"
    return TooLarge(told) if _is_size(error) else told
