"""taskiq on Redis streams or a quorum queue of RabbitMQ: the brokers of it that acknowledge."""

from __future__ import annotations

from typing import Any

from taskiq import SimpleRetryMiddleware
from taskiq_aio_pika import AioPikaBroker
from taskiq_redis import RedisStreamBroker

from peers.apps import work

#: Messages that a process has in hand; its default of 10 would leave most of its 100 slots idle.
QOS = 100

broker: Any = (
    AioPikaBroker(work.BROKER, qos=QOS)
    if work.BROKER.startswith("amqp")
    # The group reads from the beginning: events are published before a worker makes it.
    else RedisStreamBroker(work.BROKER, consumer_id="0")
).with_middlewares(SimpleRetryMiddleware(default_retry_count=work.ATTEMPTS))

begin, end = broker.startup, broker.shutdown


@broker.task(retry_on_error=True)
async def handle(event: dict[str, Any]) -> None:
    await work.run_async(event)


async def send(number: int) -> None:
    """Publish one event."""
    await handle.kiq(work.body(number))
