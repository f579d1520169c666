"""RabbitMQ by hand: py-amqp, persistent and mandatory with publisher confirms, late ack."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp
from harness import servers

from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from bare.side import Backend, Document

PATIENCE = 30.0
#: Messages handed out ahead, as many as are taken at once at most.
PREFETCH = 100


class BareRabbitMQ:
    """One connection; what is published goes to the queue by its name."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._connection = amqp.Connection(
            host=f"{at.hostname}:{at.port}", userid=at.username, password=at.password,
            virtual_host=unquote(at.path[1:]), login_method="PLAIN",
        )  # fmt: skip
        self._connection.connect()
        self._channel: Any = self._connection.channel()
        self._channel.confirm_select()
        self._channel.events["basic_ack"].add(self._on_ack)
        self._channel.basic_qos(0, PREFETCH, a_global=False)
        self._sent = self._confirmed = 0
        self._waiting: list[Any] = []
        self._consumes = False

    def put(self, name: str, documents: Sequence[Document]) -> None:
        """Publish, then wait for the confirm of the last."""
        for document in documents:
            body = json.dumps(document)
            message = amqp.Message(body, content_type="application/json", delivery_mode=2)
            self._channel.basic_publish(message, "", name, mandatory=True)
            self._sent += 1
        deadline = time.monotonic() + PATIENCE
        while self._confirmed < self._sent:
            self._connection.drain_events(timeout=deadline - time.monotonic())

    def take(self, name: str, limit: int) -> int:
        """Read what was pushed and acknowledge each."""
        if not self._consumes:
            self._channel.basic_consume(name, callback=self._waiting.append)
            self._consumes = True
        deadline = time.monotonic() + PATIENCE
        while not self._waiting:
            self._connection.drain_events(timeout=deadline - time.monotonic())
        taken, self._waiting[:limit] = self._waiting[:limit], []
        for message in taken:
            json.loads(message.body)
            self._channel.basic_ack(message.delivery_tag)
        return len(taken)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _on_ack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001  called by py-amqp
        self._confirmed = tag if multiple else self._confirmed + 1


@contextmanager
def backend() -> Iterator[Backend]:
    """Lend a virtual host of the running broker."""
    with servers.virtual_host() as url:
        yield Backend(
            told=(
                f"RabbitMQ {servers.rabbitmq_version()}, a quorum queue; py-amqp {amqp.__version__}"
            ),
            ours=lambda: RabbitMQDeadLetterQueue(url),
            theirs=lambda: BareRabbitMQ(url),
            environment={"ANGZARR_DLQ__BACKEND": "amqp", "ANGZARR_DLQ__AMQP_URL": url},
        )
