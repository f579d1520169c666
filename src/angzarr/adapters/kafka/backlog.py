"""How many letters of a topic lie ahead of a consumer group, and since when the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from angzarr.adapters.kafka.client import Cluster

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
    cluster: Cluster, consumer: Consumer, topic: str, taken: Callable[[int], int]
) -> list[Stretch]:
    """Return the offsets of each partition of *topic*; a topic that is missing has none.

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


def backlog(cluster: Cluster, consumer: Consumer, topic: str, taken: Callable[[int], int]) -> int:
    """Return how many offsets of *topic* its group has not committed; some may hold no letter."""
    return sum(one.ahead for one in stretches(cluster, consumer, topic, taken))


def oldest_at(
    cluster: Cluster, group: str, topic: str, found: Iterable[Stretch]
) -> datetime | None:
    """Return when the first of the letters ahead was written; None: none, or it did not come.

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
    """Return when a record was written; None: it says nothing, or a time that no calendar has.

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
