"""Takes letters from Kafka, which has no delete: per partition only what is done is committed."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from angzarr.adapters.kafka.client import (
    KafkaCluster,
    backlog,
    creating,
    is_fatal,
    oldest_at,
    own,
    reason_of,
    stretches,
)
from angzarr.adapters.kafka.fetched_messages import (
    FetchedAhead,
    FetchedMessage,
    KafkaHandle,
    PartitionProgress,
    record_of,
)
from angzarr.adapters.kafka.letter_producer import CONTENT_TYPE
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import BATCH_BYTES, Receipt, Room
from angzarr.dead_letters.record import bounded
from angzarr.runtime.failures import LogThrottle, is_machine_fault

_LOG: Final = logging.getLogger(__name__)
#: Where a name is not UTF-8 confluent-kafka returns a list with holes *and* sets an exception.
#: Python checks that on a call like this one, and not on a specialised `message.headers()`.
_HEADERS: Final = operator.methodcaller("headers")
#: Seconds to look for more once there is a first.
_SOON: Final = 0.01
#: Messages asked for at once. None of them tells its size before it is here.
_PART: Final = 50
#: Letters whose reading takes longer than it takes to begin a thread.
_WORTH_A_THREAD: Final = 10
#: Seconds in which a consumer that failed for good says farewell to its group.
_FAREWELL: Final = 0.5
#: More than waits to be read where a client is told to leave, in case it failed for good.
_REST: Final = 1000
#: A commit that failed because another consumer has, or will have, the partition.
_LEASE_ENDED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._NO_OFFSET,  # noqa: SLF001  librdkafka's name for it
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
        KafkaError._FATAL,  # noqa: SLF001  it is replaced when next read from
    }
)


class LetterConsumer:
    """A consumer of one process, made when first needed. Safe from any thread, one at a time."""

    def __init__(self, cluster: KafkaCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        own(self)
        self._domains: dict[str, str] = {}
        self._progress: dict[tuple[str, int], PartitionProgress] = {}
        self._ahead = FetchedAhead(self._receipt)
        #: What a fetch has in hand, of which its next part may take partitions away.
        self._fetched: list[Any] = []
        #: Bytes of the largest message of the last part.
        self._size = 1
        self._away: Any = None
        self._ended: Any = None
        self._seldom = LogThrottle()

    def receive(self, domains: Sequence[str], limit: int, wait: float) -> list[Receipt]:
        """Take up to *limit* letters, waiting at most *wait* seconds for the first."""
        with self._lock:
            if self._ended:
                self._replace()
            consumer = self._subscribed({queue_name(domain): domain for domain in domains})
            deadline = time.monotonic() + wait
            room = Room(limit)
            taken = self._ahead.take(room, self._domains)
            taken = taken or self._read(consumer, Room(1), max(wait, _SOON))
            while not taken and not self._ended and (left := deadline - time.monotonic()) > 0:
                taken = self._read(consumer, Room(1), max(left, _SOON))
            room = Room(limit)
            room.take(sum([len(one.raw) for one in taken]), len(taken))
            if taken and room and not self._ended:
                taken += self._more(consumer, room)
            if taken and limit >= _WORTH_A_THREAD and not self._ended:
                self._fetch_ahead(consumer, limit)
            if not taken and (error := self._ended or self._away):
                self._away = None
                raise self._cluster.unavailable(error)
            return taken

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Commit, for each partition, what is done without a gap."""
        with self._lock:
            for receipt in receipts:
                handle: KafkaHandle = receipt.handle
                if self._progress.get((handle.topic, handle.partition)) is handle.progress:
                    handle.progress.done(handle.offset)
            self._commit()

    def waiting(self, domains: Sequence[str]) -> dict[str, int]:
        """Count the letters of *domains* that are neither committed nor taken by us."""
        with self._lock:
            consumer = self._made()
            names = {domain: queue_name(domain) for domain in domains}
            return {
                domain: backlog(self._cluster, consumer, name, functools.partial(self._taken, name))
                + self._ahead.count(name)
                for domain, name in names.items()
            }

    def depths(self, domains: Sequence[str]) -> dict[str, QueueDepth]:
        """Count the same, what the log keeps, and say since when the first waits."""
        with self._lock:
            consumer = self._made()
            return {domain: self._depth(consumer, queue_name(domain)) for domain in domains}

    def _depth(self, consumer: Consumer, topic: str) -> QueueDepth:
        found = stretches(self._cluster, consumer, topic, functools.partial(self._taken, topic))
        return QueueDepth(
            sum(one.ahead for one in found) + self._ahead.count(topic),
            sum(one.high - one.low for one in found),
            oldest_at(self._cluster, self._group, topic, found),
        )

    def close(self) -> None:
        """Leave the group; what was not committed goes to another member or to the next one."""
        with self._lock:
            self._forget()

    def held(self) -> object:
        """The consumer, if there is one."""
        return self._consumer

    def _subscribed(self, wanted: dict[str, str]) -> Consumer:
        consumer = self._made()
        if wanted.keys() != self._domains.keys():
            self._ahead.read()  # by the domains it was fetched for
            consumer.subscribe(sorted(wanted), on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self._domains = wanted
        return consumer

    def _made(self) -> Consumer:
        if self._consumer is None:
            with creating():
                self._consumer = Consumer(self._settings())
        return self._consumer

    def _taken(self, topic: str, partition: int) -> int:
        return self._progress.get((topic, partition), PartitionProgress()).taken

    def _settings(self) -> dict[str, Any]:
        return self._cluster.settings(
            group_id=self._group,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy="cooperative-sticky",
            topic_metadata_refresh_interval_ms=10_000,
        ) | {"error_cb": self._on_error}

    def _read(self, consumer: Consumer, room: Room, wait: float) -> list[Receipt]:
        messages = self._fetch(consumer, room, wait)
        return [self._receipt(self._placed(message)) for message in messages]

    def _fetch(self, consumer: Consumer, room: Room, wait: float) -> list[Any]:
        """Messages while there is *room*, in parts, as large as the last one's messages."""
        try:
            return self._parts(consumer, room, wait)
        finally:
            self._fetched = []

    def _parts(self, consumer: Consumer, room: Room, wait: float) -> list[Any]:
        messages = self._fetched = []
        while room:
            asked = max(1, min(room.letters, _PART, room.bytes // self._size))
            try:
                part = consumer.consume(asked, timeout=wait)
            except BaseException as error:
                # It drops what it had taken: read on by it, and commits would pass over that.
                self._ended = error.args[0] if isinstance(error, KafkaException) else repr(error)
                if messages and isinstance(error, Exception):
                    break
                raise
            sizes = [len(message.value() or b"") for message in part]
            room.take(sum(sizes), len(sizes))
            self._size = max(1, *sizes) if sizes else self._size
            messages += filter(self._is_letter, part)
            if len(part) < asked or self._ended:
                break
            wait = min(wait, _SOON)
        return messages

    def _more(self, consumer: Consumer, room: Room) -> list[Receipt]:
        """Take what is there already; a failure must not drop what its caller has in hand."""
        try:
            return self._read(consumer, room, _SOON)
        except Exception:  # noqa: BLE001  noted: the next receive begins with a new consumer
            return []

    def _fetch_ahead(self, consumer: Consumer, limit: int) -> None:
        """Have *limit* messages at hand, read while those handed out are filed and committed.

        Not fetched then: a partition could be taken away before what is done in it is committed.
        """
        if room := Room(limit - len(self._ahead), BATCH_BYTES - self._ahead.bytes):
            try:
                messages = self._fetch(consumer, room, 0)
                self._ahead.add([self._placed(message) for message in messages])
            except Exception as error:  # noqa: BLE001  noted: commits would pass over what is lost
                self._ended = self._ended or repr(error)
            self._ahead.begin()

    def _is_letter(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return message.topic() in self._domains
        if is_fatal(error):
            self._ended = error  # what stands beside it is handed out first
        return False  # told to `_on_error` as well, or over by itself

    def _placed(self, message: Any) -> FetchedMessage:
        """*message* with its place, where it is in hand from now on."""
        place = (message.topic(), message.partition())
        progress = self._progress.setdefault(place, PartitionProgress())
        progress.take(message.offset())
        return FetchedMessage(message, KafkaHandle(*place, message.offset(), progress))

    def _receipt(self, fetched: FetchedMessage) -> Receipt:
        """The receipt of a message; nothing else changes by it, so that any thread may ask."""
        message, handle = fetched
        domain, body, kind = self._domains[handle.topic], message.value() or b"", ""
        try:
            headers = _headers(message)
            kind = _content_type(headers)
            record = functools.partial(record_of, message, headers)
            return read_receipt(domain, body, kind, handle, record)
        except Exception as error:  # noqa: BLE001  one message keeps no other one back
            return Receipt(
                domain=domain,
                letter=None,
                raw=body,
                content_type=kind,
                problem="the letter's headers cannot be read",
                to_read_again=is_machine_fault(error),
                record=bounded(record_of(message, ())),
                handle=handle,
            )

    def _replace(self) -> None:
        if self._seldom.now():
            _LOG.warning(
                "kafka_client_replaced: the old one can read no more dead letters: %s",
                reason_of(self._ended),
            )
        with contextlib.suppress(Exception):  # the group misses it in time
            self._forget()

    def _forget(self) -> None:
        """Let go of the consumer and of all that it knew; a new one begins at what is committed."""
        consumer, self._consumer = self._consumer, None
        try:
            if consumer:
                _leave(consumer, ended=is_fatal(self._ended))
        finally:
            self._ahead.clear()  # first: it is read by the domains that it was fetched for
            self._domains = {}
            self._progress.clear()
            self._ended = None

    def _commit(self) -> None:
        moved = {
            place: progress.position
            for place, progress in self._progress.items()
            if progress.position > progress.committed
        }
        consumer = self._consumer
        if not moved or consumer is None:
            return
        offsets = [TopicPartition(*place, position) for place, position in moved.items()]
        try:
            results: Any = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _LEASE_ENDED:
                raise
            return
        for result in results or ():
            if result.error is None:
                self._progress[result.topic, result.partition].committed = result.offset

    def _on_revoke(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = {(partition.topic, partition.partition) for partition in partitions}
        self._ahead.drop(gone)
        kept = [one for one in self._fetched if (one.topic(), one.partition()) not in gone]
        self._fetched[:] = kept  # their next consumer begins at the committed offset
        for place in gone:
            self._progress.pop(place, None)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  librdkafka's name for it
            self._away = error


def _headers(message: Any) -> Sequence[tuple[str, bytes | None]]:
    """The headers; raises SystemError where a name is not UTF-8."""
    return _HEADERS(message) or ()


def _content_type(headers: Sequence[tuple[str, bytes | None]]) -> str:
    return (dict(headers).get(CONTENT_TYPE) or b"").decode("utf-8", "replace")


def _leave(consumer: Consumer, *, ended: bool) -> None:
    """Leave the group, also if the client has *ended*: failed for good.

    Closing such a client never returns: it leaves instead, which it does while it is read from,
    and freed.
    """
    consumer.unsubscribe()
    rest = consumer.consume(_REST, timeout=_FAREWELL if ended else _SOON)
    if not ended and not any(is_fatal(message.error()) for message in rest):
        consumer.close()
