"""Publishing raw messages through Celery's producer pool, at once or later, confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from amqp.exceptions import AMQPError, ChannelError, MessageNacked
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from kombu.transport.native_delayed_delivery import calculate_routing_key, level_name
from kombu.utils.url import maybe_sanitize_url

from angzarr.clock import Clock
from angzarr.delivery.schedule import SLEPT, Schedule, rest_headers
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names
from angzarr.events.message import Message

#: What kombu's 28 levels of delay queues can tell.
LONGEST_NATIVE = timedelta(seconds=2**28 - 1)
#: It tells whole seconds; what is shorter waits in the store (decisions 15).
SHORTEST_NATIVE = timedelta(seconds=1)
#: Shorter waits than this are sent at once; the clock of two hosts differs by more.
AT_ONCE = timedelta(milliseconds=5)
#: How long RabbitMQ may take to confirm, in seconds; then the connection counts as lost.
CONFIRMED_WITHIN = 30

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
                confirm_timeout=CONFIRMED_WITHIN,
                retry=True,
                retry_policy=conf.task_publish_retry_policy,
                **message.properties,
            )

    @contextmanager
    def producer(self) -> Iterator[Any]:
        """Lend a producer; every error of broker or connection becomes BrokerUnavailable."""
        with (
            self._away_told(self._app.pool.connection),
            self._app.producer_pool.acquire(block=True, timeout=10) as producer,
        ):
            yield producer

    @contextmanager
    def _away_told(self, connection: Any) -> Iterator[None]:
        away = (*AWAY, *connection.connection_errors, *connection.channel_errors)
        try:
            yield
        except away as error:
            where = maybe_sanitize_url(self._app.conf.broker_url or "the default address")
            msg = f"the broker at {where} did not confirm the message ({error}); is it running?"
            refused = isinstance(error, MessageNacked | ChannelError) or refuses(error)
            raise BrokerUnavailable(msg, refused=refused) from error


class CelerySchedule:
    """Delays that hold nothing: RabbitMQ's own where it has one, else rows of a schedule."""

    def __init__(
        self, app: Any, publisher: CeleryPublisher, rows: Callable[[], Schedule], clock: Clock
    ) -> None:
        self._app = app
        self._publisher = publisher
        self._rows = rows
        self._clock = clock

    def put(self, copy: Message, at: datetime) -> None:
        """Let *copy* come back at *at*; RabbitMQ rounds to whole seconds, see `whole_seconds`.

        Raises BrokerUnavailable or StoreUnavailable, by where it was to wait.
        """
        delay = at - self._clock.now()
        if delay <= AT_ONCE:
            self._publisher.publish(copy)
            return
        queue = self._publisher.queue(copy.queue)
        if delay < SHORTEST_NATIVE or not native_delay(self._app, queue):
            self._rows().put(copy, at)
            return
        seconds = whole_seconds(copy, delay)
        left = rest_headers(delay - timedelta(seconds=seconds))
        copy = replace(copy, headers={**copy.headers, **left})
        routing_key = calculate_routing_key(seconds, queue.routing_key)
        self._publisher.send(copy, Exchange(level_name(27), type="topic"), routing_key)


class LonePublisher(CeleryPublisher):
    """A publisher with one connection of its own, for one thread beside which others fork.

    Celery's pool has locks that a child would inherit as they are at that moment.
    """

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._connection: Any = None
        self._producer: Any = None

    @contextmanager
    def producer(self) -> Iterator[Any]:
        """Lend the one producer; after an error the next one has a new connection."""
        if self._connection is None:
            self._connection = self._app.connection_for_write()
        with self._away_told(self._connection):
            try:
                if self._producer is None:
                    self._producer = self._app.amqp.Producer(self._connection, auto_declare=False)
                yield self._producer
            except MessageNacked:
                raise  # the connection is well
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the connection; a new one is made when needed."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.collect()  # says no good-bye to a server that may be away


def whole_seconds(copy: Message, delay: timedelta) -> int:
    """Return for how many seconds RabbitMQ is to hold *copy*: rounded up, but for a last 100 ms.

    A copy says what is left, which whoever gets it sleeps (15), so none is later than 0.9 s and its
    way. What only its publisher's ``eta`` delays never comes too early.
    """
    slept = SLEPT if names.ATTEMPT in copy.headers else timedelta(0)
    return max(math.ceil((min(delay, LONGEST_NATIVE) - slept).total_seconds()), 1)


def refuses(error: Exception) -> bool:
    """Tell whether the broker is there and *error* of a publish concerns that message alone."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, MessageNacked | ChannelError):
        cause = cause.__cause__
    return cause is not None


def address(queue: Queue) -> tuple[Exchange | str, str]:
    """Return exchange and routing key that reach *queue* and no other."""
    if queue.exchange is None or queue.exchange.type == "direct" or not queue.exchange.name:
        return "", queue.name
    return queue.exchange, queue.routing_key


def transport_of(app: Any) -> str:
    """Return the broker's driver type: ``amqp``, ``redis``, ``SQS``, ``memory`` and so on."""
    return str(app.pool.connection.transport.driver_type)  # the pool's own: none is made for it


def native_delay(app: Any, queue: Queue) -> bool:
    """Tell whether the broker itself can hold a message for *queue* (RabbitMQ, quorum, topic)."""
    arguments = queue.queue_arguments or {}
    return (
        transport_of(app) == "amqp"
        and arguments.get("x-queue-type") == "quorum"
        and queue.exchange is not None
        and queue.exchange.type != "direct"
    )
