"""Takes letters from Kafka, which has no delete: per partition only what is done is committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from angzarr.adapters.kafka.client import Cluster, creating, own
from angzarr.adapters.kafka.letter_producer import CONTENT_TYPE
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Receipt

#: Seconds to look for more once there is a first.
_SOON: Final = 0.01
#: A commit that failed because the partition is, or will be, somebody else's.
_LEASE_ENDED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._NO_OFFSET,  # noqa: SLF001  librdkafka's name for it
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
    }
)


class Progress:
    """How far one partition is done, while it is ours. Offsets are taken in ascending order."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._last = -1
        self.committed = -1

    def take(self, offset: int) -> None:
        """Note a letter handed out."""
        self._open[offset] = None
        self._last = offset

    def done(self, offset: int) -> None:
        """Note a letter let go."""
        self._open.pop(offset, None)

    @property
    def position(self) -> int:
        """The offset before which everything is done."""
        return next(iter(self._open), self._last + 1)


class Handle(NamedTuple):
    """A letter's place, and the progress of the assignment that it came by."""

    topic: str
    partition: int
    offset: int
    progress: Progress


class LetterConsumer:
    """A consumer of one process, made when first needed. Safe from any thread, one at a time."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        own(self)
        self._domains: dict[str, str] = {}
        self._progress: dict[tuple[str, int], Progress] = {}
        self._away: Any = None

    def receive(self, domains: Sequence[str], limit: int, wait: float) -> list[Receipt]:
        """Take up to *limit* letters, waiting at most *wait* seconds for the first."""
        with self._lock:
            consumer = self._subscribed({queue_name(domain): domain for domain in domains})
            deadline = time.monotonic() + wait
            taken: list[Receipt] = []
            while not taken and (left := deadline - time.monotonic()) >= 0:
                taken = self._read(consumer.consume(1, timeout=max(left, _SOON)))
            if taken and limit > 1:
                taken += self._read(consumer.consume(limit - 1, timeout=_SOON))
            if not taken and self._away:
                error, self._away = self._away, None
                raise self._cluster.unavailable(error)
            return taken

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Commit, for each partition, what is done without a gap."""
        with self._lock:
            for receipt in receipts:
                handle: Handle = receipt.handle
                if self._progress.get((handle.topic, handle.partition)) is handle.progress:
                    handle.progress.done(handle.offset)
            self._commit()

    def close(self) -> None:
        """Leave the group; what was not committed goes to another member or to the next one."""
        with self._lock:
            if self._consumer:
                self._consumer.close()
            self._consumer = None
            self._domains.clear()
            self._progress.clear()

    def held(self) -> object:
        """Return the consumer, if there is one."""
        return self._consumer

    def _subscribed(self, wanted: dict[str, str]) -> Consumer:
        if self._consumer is None:
            with creating():
                self._consumer = Consumer(self._settings())
        if wanted.keys() != self._domains.keys():
            self._consumer.subscribe(
                sorted(wanted), on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
        self._domains = wanted
        return self._consumer

    def _settings(self) -> dict[str, Any]:
        return self._cluster.settings(
            group_id=self._group,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy="cooperative-sticky",
            topic_metadata_refresh_interval_ms=10_000,
        ) | {"error_cb": self._on_error}

    def _read(self, messages: Sequence[Any]) -> list[Receipt]:
        return [self._receipt(message) for message in messages if self._is_letter(message)]

    def _is_letter(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return message.topic() in self._domains
        if error.fatal():
            self._consumer = None
            raise KafkaException(error)
        return False  # told to `_on_error` as well, or over by itself

    def _receipt(self, message: Any) -> Receipt:
        place = (message.topic(), message.partition())
        progress = self._progress.setdefault(place, Progress())
        progress.take(message.offset())
        headers = dict(message.headers() or ())
        content_type = (headers.get(CONTENT_TYPE) or b"").decode("utf-8", "replace")
        handle = Handle(*place, message.offset(), progress)
        body = message.value() or b""
        return read_receipt(self._domains[message.topic()], body, content_type, handle)

    def _commit(self) -> None:
        moved = {
            place: progress.position
            for place, progress in self._progress.items()
            if progress.position > progress.committed
        }
        if not moved or self._consumer is None:
            return
        offsets = [TopicPartition(*place, position) for place, position in moved.items()]
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _LEASE_ENDED:
                raise
            return
        for result in results or ():
            if result.error is None:
                self._progress[result.topic, result.partition].committed = result.offset

    def _on_revoke(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._progress.pop((partition.topic, partition.partition), None)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  librdkafka's name for it
            self._away = error
