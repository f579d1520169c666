"""dramatiq on Redis or RabbitMQ, with the middleware that it starts with."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

from peers.apps import work

broker: Any = (
    RabbitmqBroker(url=work.BROKER)
    if work.BROKER.startswith("amqp")
    else RedisBroker(url=work.BROKER)
)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=work.ATTEMPTS - 1, min_backoff=1, max_backoff=1)
def handle(event: dict[str, Any]) -> None:
    work.run(event)


def send(number: int) -> None:
    """Publish one event."""
    handle.send(work.body(number))
