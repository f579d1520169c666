"""Topics: creates those that are missing, or says so; existing ones are judged once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from angzarr.adapters.kafka.client import Cluster, reason_of
from angzarr.adapters.kafka.durability import BASE, settings_for
from angzarr.adapters.kafka.topic_check import TopicCheck

#: What a hosted Kafka says that lets nobody choose some of the settings.
_NOT_YOURS_TO_SET: Final = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION})
_MISSING: Final = (
    "its topic {} does not exist and is not to be created (dlq.create_missing is false): create it"
)


class Topics:
    """Sees to it that topics are there; safe from any thread."""

    def __init__(
        self, cluster: Cluster, *, partitions: int, replication: int, create_missing: bool = True
    ) -> None:
        self._cluster = cluster
        self._create_missing = create_missing
        self._partitions = partitions
        self._replication = replication
        self._ready: frozenset[str] = frozenset()
        self._check = TopicCheck(cluster)

    def ensure(self, names: set[str], client: Producer) -> dict[str, str]:
        """Return for each of *names* that is not there and why; raises KafkaException."""
        self._check.say()
        wanted = names - self._ready
        if not wanted:
            return {}
        found = client.list_topics(timeout=self._cluster.timeout).topics.keys()
        created, refused = self._create(wanted - found)
        ready = wanted - refused.keys()
        self._ready |= ready
        self._check.begin(ready, created=created)
        return refused

    def forget(self) -> None:
        """Look again when a topic is next needed."""
        self._ready = frozenset()

    def _create(self, names: Collection[str]) -> tuple[set[str], dict[str, str]]:
        """Return those of *names* that were created by us, and why others are not there."""
        if not self._create_missing:
            return set(), {name: _MISSING.format(name) for name in names}
        if not names:
            return set(), {}
        errors = self._asked(names, settings_for(self._replication))
        if few := [n for n, error in errors.items() if _code(error) in _NOT_YOURS_TO_SET]:
            errors |= self._asked(few, BASE)
        refused = {
            name: f"Kafka refused to create its topic: {reason_of(error)}"
            for name, error in errors.items()
            if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS
        }
        return {name for name, error in errors.items() if error is None}, refused

    def _asked(self, names: Collection[str], settings: Mapping[str, str]) -> dict[str, Any]:
        """Ask for *names* with *settings*; return the error of each, or None."""
        new = [
            NewTopic(
                name,
                num_partitions=self._partitions,
                replication_factor=self._replication,
                config=dict(settings),
            )
            for name in sorted(names)
        ]
        bound = self._cluster.timeout
        admin = AdminClient(self._cluster.settings())
        asked = admin.create_topics(new, operation_timeout=bound, request_timeout=bound)
        return {name: _error(future) for name, future in asked.items()}


def _error(created: Any) -> Any:
    try:
        created.result()
    except KafkaException as error:
        return error.args[0]
    return None


def _code(error: Any) -> int | None:
    return None if error is None else error.code()
