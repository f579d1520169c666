"""Dead letters on RabbitMQ: mandatory, confirmed, in quorum queues (spec L2, L4)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from angzarr.adapters.rabbitmq.letter_publisher import RabbitMQLetterPublisher
from angzarr.adapters.rabbitmq.letter_receiver import RabbitMQLetterReceiver
from angzarr.adapters.rabbitmq.link import read_cluster, told
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.queue import Outgoing, Receipt


class RabbitMQDeadLetterQueue:
    """A dead-letter queue on RabbitMQ; safe from any thread and across fork.

    *url* may name several brokers of a cluster, split by ';'. *timeout* bounds each connect,
    confirm and reply. *tls* holds py-amqp's ssl options, e.g. ``ca_certs``. Without
    *create_missing* exchange and queues are only checked.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: timedelta = timedelta(seconds=5),
        form: Form = Form.JSON,
        tls: Mapping[str, Any] | None = None,
        create_missing: bool = True,
    ) -> None:
        self._cluster = read_cluster(url, tls)
        self._timeout = timeout.total_seconds()
        self._form = form
        self._create_missing = create_missing
        self._open()

    def put(self, letters: Sequence[Outgoing], /) -> list[str | None]:
        """Publish *letters* and wait for the broker's word on each."""
        if not letters:
            return []
        self._leave_parents_links()
        with told(self._cluster):
            return self._publisher.publish(letters)

    put_raw = put

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters of *domains* (see DeadLetterQueue)."""
        if not domains:
            return []
        self._leave_parents_links()
        with told(self._cluster):
            return self._receiver.receive(domains, limit, wait.total_seconds())

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Acknowledge *receipts*; those of a connection that was lost come back anyway."""
        self._leave_parents_links()
        with told(self._cluster):
            self._receiver.done(receipts)

    def waiting(self, domains: Sequence[str], /) -> dict[str, int]:
        """Count what the broker has for the next receiver (see CountsWaiting)."""
        self._leave_parents_links()
        with told(self._cluster):
            return self._receiver.waiting(domains)

    def close(self) -> None:
        """Close both connections; the broker gives back what was not done."""
        self._leave_parents_links()
        self._publisher.close()
        self._receiver.close()

    def _open(self) -> None:
        self._process = os.getpid()
        create, check = self._create_missing, QueueCheck()
        self._publisher = RabbitMQLetterPublisher(
            self._cluster, self._timeout, self._form, create_missing=create, check=check
        )
        self._receiver = RabbitMQLetterReceiver(
            self._cluster, self._timeout, create_missing=create, check=check
        )

    def _leave_parents_links(self) -> None:
        if self._process != os.getpid():
            self._publisher.leave()
            self._receiver.leave()
            self._open()
