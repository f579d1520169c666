"""Reads the Kafka topics of dead letters for the doctor; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from angzarr.adapters.kafka.client import KafkaCluster
from angzarr.adapters.kafka.topics import (
    FoundTopic,
    KafkaTopics,
    TopicCheck,
    is_worth_a_warning,
    weaknesses,
)
from angzarr.dead_letters.names import queue_name
from angzarr.doctor.letter_rules import LetterQueueSeen

#: What the doctor's caller turns into one finding.
FAILURES: Final = (KafkaException,)


def letter_queues(
    cluster: KafkaCluster, domains: Sequence[str], group: str, *, create_missing: bool
) -> list[LetterQueueSeen]:
    """The topics of *domains*; raises KafkaException where no broker answers.

    Others' topics are left out: no record says how far their consumers have read.
    """
    admin = AdminClient(cluster.settings())
    there = admin.list_topics(timeout=cluster.timeout).topics
    readers = _readers(admin, cluster, group)
    names = {queue_name(domain): domain for domain in domains}
    known = _judged(cluster, admin, sorted(names.keys() & there.keys()))
    return [
        LetterQueueSeen(
            domain=domain,
            name=name,
            exists=name in there,
            made_when_missing=create_missing,
            weak=weaknesses(known[name]) if name in known else (),
            mild=name in known and not is_worth_a_warning(known[name]),
            readers=readers,
        )
        for name, domain in names.items()
    ]


def make_topic(cluster: KafkaCluster, domain: str, *, partitions: int, replication: int) -> str:
    """Make the topic of *domain*; return why it could not be made, or an empty string."""
    topics = KafkaTopics(cluster, partitions=partitions, replication=replication)
    name = queue_name(domain)
    return topics.ensure({name}, Producer(cluster.settings())).get(name, "")


def _judged(cluster: KafkaCluster, admin: Any, names: list[str]) -> Mapping[str, FoundTopic]:
    """Settings and replicas of *names*; of none where they may not be asked for."""
    try:
        return {one.name: one for one in TopicCheck(cluster).found(admin, names)}
    except KafkaException:
        return {}


def _readers(admin: Any, cluster: KafkaCluster, group: str) -> int | None:
    """The number of consumers of the *group*; None where that is unknown."""
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=cluster.timeout)
        return len(asked[group].result().members)
    except (KafkaException, KeyError):
        return None
