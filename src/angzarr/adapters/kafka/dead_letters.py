"""Dead letters on Kafka: a topic a domain, keyed by aggregate root (spec L2, L4)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaException

from angzarr.adapters.kafka.client import Cluster
from angzarr.adapters.kafka.letter_consumer import LetterConsumer
from angzarr.adapters.kafka.letter_producer import LetterProducer
from angzarr.adapters.kafka.topics import Topics
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Receipt

#: The consumer group of the analysis worker.
ANALYSIS_GROUP: Final = "angzarr-dlq-analysis"


class KafkaDeadLetterQueue:
    """A dead-letter queue on Kafka; safe from any thread and across fork.

    Letters that are done out of order are committed once those before them in their partition
    are done too; until then a restart brings them back. *timeout* bounds delivery reports and
    requests; *replication* -1 is the broker's default; *options* are librdkafka's, e.g. for TLS
    and SASL.
    """

    def __init__(
        self,
        brokers: str,
        *,
        timeout: timedelta = timedelta(seconds=5),
        form: Form = Form.JSON,
        group: str = ANALYSIS_GROUP,
        partitions: int = 3,
        replication: int = -1,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._cluster = Cluster(
            brokers=brokers, timeout=timeout.total_seconds(), options=dict(options or {})
        )
        self._topics = Topics(self._cluster, partitions=partitions, replication=replication)
        self._form = form
        self._group = group
        self._open()

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Produce *letters* and wait for each one's delivery report (see DeadLetterQueue)."""
        if not letters:
            return []
        self._leave_parents_clients()
        with self._cluster.told():
            return self._producer.produce(letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters of *domains* (see DeadLetterQueue).

        Asking for other domains than before makes the group share its partitions out anew.
        """
        if not domains:
            return []
        self._leave_parents_clients()
        with self._cluster.told():
            self._topics.ensure(set(map(queue_name, domains)), self._producer.client())
            return self._consumer.receive(domains, limit, wait.total_seconds())

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let *receipts* go; those of a partition that was taken away come to its new owner."""
        self._leave_parents_clients()
        with self._cluster.told():
            self._consumer.done(receipts)

    def close(self) -> None:
        """Leave the group and let both clients go."""
        self._leave_parents_clients()
        self._producer.close()
        with contextlib.suppress(KafkaException):  # the group notices by itself
            self._consumer.close()

    def _open(self) -> None:
        self._process = os.getpid()
        self._producer = LetterProducer(self._cluster, self._topics, self._form)
        self._consumer = LetterConsumer(self._cluster, self._group)

    def _leave_parents_clients(self) -> None:
        if self._process != os.getpid():
            self._open()
