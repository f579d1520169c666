"""Dead letters on Kafka: one topic for each domain, keyed by aggregate root (spec L2, L4)."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaException

from angzarr.adapters.kafka.client import KafkaCluster
from angzarr.adapters.kafka.letter_consumer import LetterConsumer
from angzarr.adapters.kafka.letter_producer import LetterProducer
from angzarr.adapters.kafka.topics import KafkaTopics
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.names import ANALYSIS_GROUP, queue_name
from angzarr.dead_letters.queue import Outgoing, Receipt
from angzarr.runtime.failures import LogThrottle

_LOG: Final = logging.getLogger(__name__)


class KafkaDeadLetterQueue:
    """A dead-letter queue on Kafka; safe from any thread and across fork.

    Letters that are done out of order are committed once those before them in their partition
    are done too; until then a restart brings them back. *timeout* bounds delivery reports and
    requests; *replication* -1 is the broker's default; *options* are librdkafka's, e.g. for TLS
    and SASL. Without *create_missing* a topic that is missing refuses its letters.
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
        create_missing: bool = True,
    ) -> None:
        self._cluster = KafkaCluster(
            brokers=brokers, timeout=timeout.total_seconds(), options=dict(options or {})
        )
        self._cluster.check()
        self._topics = KafkaTopics(
            self._cluster,
            partitions=partitions,
            replication=replication,
            create_missing=create_missing,
        )
        self._seldom = LogThrottle()
        self._form = form
        self._group = group
        self._open()

    def put(self, letters: Sequence[Outgoing], /) -> list[str | None]:
        """Produce *letters* and wait for each one's delivery report; bytes have no key."""
        if not letters:
            return []
        self._leave_parents_clients()
        with self._cluster.told():
            return self._producer.produce(letters)

    put_raw = put

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters of *domains* (see DeadLetterQueue).

        Asking for other domains than before makes the group share its partitions out anew.
        """
        if not domains:
            return []
        self._leave_parents_clients()
        with self._cluster.told():
            names = set(map(queue_name, domains))
            for name, problem in self._topics.ensure(names, self._producer.client()).items():
                if self._seldom.now(name):
                    _LOG.warning(
                        "dead_letters_not_read: those of %s cannot be read: %s", name, problem
                    )
            return self._consumer.receive(domains, limit, wait.total_seconds())

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let *receipts* go; those of a partition that was taken away come to its new owner."""
        self._leave_parents_clients()
        with self._cluster.told():
            self._consumer.done(receipts)

    def waiting(self, domains: Sequence[str], /) -> dict[str, int]:
        """Count what this group has not committed and we did not take (see CountsWaiting)."""
        self._leave_parents_clients()
        with self._cluster.told():
            return self._consumer.waiting(domains)

    def depths(self, domains: Sequence[str], /) -> dict[str, QueueDepth]:
        """Lag, length of the log, and since when the first waits (see TellsDepth)."""
        self._leave_parents_clients()
        with self._cluster.told():
            return self._consumer.depths(domains)

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
