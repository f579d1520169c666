"""Publishing raw messages through Celery's producer pool, at once or later, confirmed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from amqp.exceptions import AMQPError, MessageNacked
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from kombu.transport.native_delayed_delivery import calculate_routing_key, level_name
from kombu.utils.url import maybe_sanitize_url

from angzarr.clock import Clock
from angzarr.errors import BrokerUnavailable
from angzarr.events.message import Message

#: The share of the broker's visibility time-out that a delay may fill; the rest is for running.
SAFE_SHARE = 0.5
#: RabbitMQ gives a message back that was held this long (consumer_timeout, 30 min by default).
AMQP_HELD = timedelta(minutes=30)
#: What kombu's 28 levels of delay queues can tell.
LONGEST_NATIVE = timedelta(seconds=2**28 - 1)
#: kombu's default visibility time-outs.
VISIBILITY = {"redis": timedelta(hours=1), "sqs": timedelta(minutes=30)}
#: Shorter waits than this are sent at once; the clock of two hosts differs by more.
AT_ONCE = timedelta(milliseconds=5)

PERSISTENT = 2
#: What kombu and its AMQP client raise for a message that was not confirmed.
AWAY = (KombuError, OSError, AMQPError, MessageNacked)


class CeleryPublisher:
    """Sends raw messages to their queues; every publish is confirmed where the broker can."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def publish(self, message: Message) -> None:
        """Return once the broker confirmed *message*; raises BrokerUnavailable otherwise."""
        exchange, routing_key = address(self.queue(message.queue))
        self.send(message, exchange, routing_key)

    def queue(self, name: str) -> Queue:
        """Return the queue *name* with the arguments this app declares it with."""
        return self._app.amqp.queues[name]

    def send(self, message: Message, exchange: Exchange | str, routing_key: str) -> None:
        """Send *message* by way of *exchange*; the queue it names is declared first."""
        conf = self._app.conf
        with self.producer() as producer:
            producer.publish(
                message.body,
                exchange=exchange,
                routing_key=routing_key,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                headers=dict(message.headers),
                declare=[self.queue(message.queue)],
                delivery_mode=PERSISTENT,
                mandatory=True,  # what no queue takes comes back, and is an error
                priority=message.priority,
                retry=True,
                retry_policy=conf.task_publish_retry_policy,
                **message.properties,
            )

    @contextmanager
    def producer(self) -> Iterator[Any]:
        """Lend a producer; every error of broker or connection becomes BrokerUnavailable."""
        connection = self._app.pool.connection
        away = (*AWAY, *connection.connection_errors, *connection.channel_errors)
        try:
            with self._app.producer_pool.acquire(block=True, timeout=10) as producer:
                yield producer
        except away as error:
            where = maybe_sanitize_url(self._app.conf.broker_url or "the default address")
            msg = f"the broker at {where} did not confirm the message ({error}); is it running?"
            raise BrokerUnavailable(msg) from error


class CelerySchedule:
    """Delays by the broker's own means: RabbitMQ's native delay, or an ETA held by a worker."""

    def __init__(self, app: Any, publisher: CeleryPublisher, clock: Clock) -> None:
        self._app = app
        self._publisher = publisher
        self._clock = clock

    @property
    def longest(self) -> timedelta | None:
        """The longest delay that cannot cause a second delivery while a worker holds it."""
        return longest_safe_delay(self._app)

    def put(self, copy: Message, at: datetime) -> None:
        """Publish *copy* to come back at *at*; RabbitMQ rounds up to whole seconds."""
        delay = at - self._clock.now()
        if delay <= AT_ONCE:
            self._publisher.publish(copy)
            return
        queue = self._publisher.queue(copy.queue)
        if native_delay(self._app, queue):
            seconds = math.ceil(delay.total_seconds())
            routing_key = calculate_routing_key(seconds, queue.routing_key)
            entry = Exchange(level_name(27), type="topic")
            self._publisher.send(copy, entry, routing_key)
            return
        held = {**copy.headers, "eta": at.astimezone(UTC).isoformat()}
        self._publisher.publish(replace(copy, headers=held))


def address(queue: Queue) -> tuple[Exchange | str, str]:
    """Return exchange and routing key that reach *queue* and no other."""
    if queue.exchange is None or queue.exchange.type == "direct" or not queue.exchange.name:
        return "", queue.name
    return queue.exchange, queue.routing_key


def transport_of(app: Any) -> str:
    """Return the broker's driver type: ``amqp``, ``redis``, ``SQS``, ``memory`` and so on."""
    return str(_transport(app).driver_type)


def _transport(app: Any) -> Any:
    return app.pool.connection.transport  # the pool's own: none is made for it


def native_delay(app: Any, queue: Queue) -> bool:
    """Tell whether the broker itself can hold a message for *queue* (RabbitMQ, quorum, topic)."""
    arguments = queue.queue_arguments or {}
    return (
        transport_of(app) == "amqp"
        and arguments.get("x-queue-type") == "quorum"
        and queue.exchange is not None
        and queue.exchange.type != "direct"
    )


def longest_safe_delay(app: Any) -> timedelta | None:
    """Return the longest delay that *app*'s broker holds safely for its queues; None: any."""
    kind = transport_of(app).lower()
    if kind == "amqp":
        native = all(native_delay(app, queue) for queue in app.amqp.queues.values())
        return LONGEST_NATIVE if native else AMQP_HELD * SAFE_SHARE
    if kind not in VISIBILITY or not getattr(_transport(app), "redelivers_by_time", True):
        return None
    options = app.conf.broker_transport_options or {}
    visible = options.get("visibility_timeout")
    held = VISIBILITY[kind] if visible is None else timedelta(seconds=visible)
    return held * SAFE_SHARE
