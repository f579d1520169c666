"""How many letters of a topic lie ahead of a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from angzarr.adapters.kafka.client import Cluster


def backlog(cluster: Cluster, consumer: Consumer, topic: str, taken: Callable[[int], int]) -> int:
    """Return how many offsets of *topic* its group has not committed; some may hold no letter.

    Those of a partition before what *taken* says are in our hands. A topic that is missing has
    none. Ends are asked for beside the consumer, whose own line is busy with a fetch that waits.
    """
    admin = AdminClient(cluster.settings())
    found = admin.list_topics(topic, timeout=cluster.timeout).topics[topic].partitions
    places = [TopicPartition(topic, number) for number in found]
    if not places:
        return 0
    spec: Any = OffsetSpec
    low = _offsets(admin, places, spec.earliest(), cluster.timeout)
    high = _offsets(admin, places, spec.latest(), cluster.timeout)
    reached = {
        place.partition: max(low[place.partition], place.offset, taken(place.partition))
        for place in consumer.committed(places, timeout=cluster.timeout)
    }
    return sum(max(0, end - reached[partition]) for partition, end in high.items())


def _offsets(
    admin: Any, places: Sequence[TopicPartition], spec: Any, timeout: float
) -> dict[int, int]:
    asked = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=timeout)
    return {place.partition: future.result().offset for place, future in asked.items()}
