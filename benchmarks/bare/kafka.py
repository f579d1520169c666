"""Kafka by hand: confluent-kafka, acks=all, idempotent, offsets committed batch by batch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from harness import servers

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from bare.side import Backend, Document

#: Seconds without a confirm or a message after which a run is void.
PATIENCE = 30.0


class BareKafka:
    """A producer and a consumer as their documentation shows them."""

    def __init__(self, brokers: str) -> None:
        self._brokers = {"bootstrap.servers": brokers}
        self._producer: Any = None
        self._consumer: Any = None
        self._failed: list[Any] = []

    def put(self, name: str, documents: Sequence[Document]) -> None:
        """Produce, then flush, which waits for every delivery report."""
        if self._producer is None:
            settings = {**self._brokers, "acks": "all", "enable.idempotence": True}
            self._producer = confluent_kafka.Producer(settings)
        for document in documents:
            key = document["metadata"]["entity_id"]  # as ours: one aggregate, one partition
            body = json.dumps(document).encode()
            self._producer.produce(name, body, key, on_delivery=self._told)
        if self._producer.flush(PATIENCE) or self._failed:
            msg = f"Kafka did not confirm: {self._failed}"
            raise RuntimeError(msg)

    def take(self, name: str, limit: int) -> int:
        """Consume and commit the position."""
        if self._consumer is None:
            self._consumer = confluent_kafka.Consumer({
                **self._brokers, "group.id": f"bare-{uuid.uuid4()}",
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
            })  # fmt: skip
            self._consumer.subscribe([name])
        messages = self._consumer.consume(limit, timeout=PATIENCE if limit == 1 else 0.05)
        for message in messages:
            json.loads(message.value())
        if messages:
            self._consumer.commit(asynchronous=False)
        return len(messages)

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()

    def _told(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)


@contextmanager
def backend(*, partitions: int = 3) -> Iterator[Backend]:
    """Lend the running broker, where topics of ours have so many *partitions*."""
    brokers = servers.address(servers.KAFKA)
    group = f"bench-{uuid.uuid4()}"
    yield Backend(
        told=f"Kafka, one broker; confluent-kafka {confluent_kafka.__version__}",
        ours=lambda: KafkaDeadLetterQueue(brokers, group=group, partitions=partitions),
        theirs=lambda: BareKafka(brokers),
        environment={
            "ANGZARR_DLQ__BACKEND": "kafka",
            "ANGZARR_DLQ__KAFKA_BROKERS": brokers,
            "ANGZARR_DLQ__KAFKA_OPTIONS": json.dumps({"session.timeout.ms": 6000}),
        },
    )
