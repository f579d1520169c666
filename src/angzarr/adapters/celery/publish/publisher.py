"""Publishes raw messages through Celery's producer pool, at once or later, confirmed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from amqp.exceptions import AMQPError, ChannelError, MessageNacked
from celery import Celery
from kombu import Exchange, Queue
from kombu.common import Broadcast
from kombu.exceptions import KombuError
from kombu.utils.url import maybe_sanitize_url

from angzarr.adapters.celery.publish.native_delay import ENTRY, key_to, leads_to_it_alone, way_to
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.clock import Clock
from angzarr.delivery.schedule import REFUSED_FOR, SLEPT, Schedule, rest_headers
from angzarr.errors import BrokerUnavailable, Unroutable
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.schedule")

#: What kombu's 28 levels of delay queues can tell.
LONGEST_NATIVE = timedelta(seconds=2**28 - 1)
#: It tells whole seconds; what is shorter waits in the store.
SHORTEST_NATIVE = timedelta(seconds=1)
#: Shorter waits than this are sent at once; the clock of two hosts differs by more.
AT_ONCE = timedelta(milliseconds=5)
#: How long RabbitMQ may take to confirm, in seconds; then the connection counts as lost.
CONFIRMED_WITHIN = 30

PERSISTENT = 2
#: What kombu and its AMQP client raise for a message that was not confirmed.
AWAY = (KombuError, OSError, AMQPError, MessageNacked)
#: Those of a broker that is there: it will not have this message, or not like this.
REFUSALS = (MessageNacked, ChannelError, Unroutable)


class CeleryPublisher:
    """Sends raw messages to their queues; every publish is confirmed where the broker can."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def publish(self, message: Message) -> None:
        """Publish *message* and wait for the confirm; raises BrokerUnavailable without one.

        It goes to its queue and to no other. A queue of others is not declared: if it is gone, the
        message takes the way that it was first sent by, where that is known.
        """
        queue = self.queue(message.queue)
        if transport_of(self._app) != "amqp" and (shared := self._fanout(message, queue)):
            self.send(message, shared, message.routing_key, [shared])
            return
        declared = () if queue is None or isinstance(queue, Broadcast) else (queue,)
        try:
            self.send(message, "", message.queue, declared)
        except BrokerUnavailable as error:
            if declared or not message.exchange or not came_back(error):
                raise
            self.send(message, message.exchange, message.routing_key)

    def sealed(self, message: Message) -> Message:
        """*message* as it may wait in a table: its body sealed, if all that is sent is."""
        offloader = runtime_of(self._app).offloader()
        return message if offloader is None else offloader.sealed(message)

    def queue(self, name: str) -> Queue | None:
        """The queue *name* as this app declares it, None if others do."""
        queue: Queue | None = self._app.amqp.queues.described(name)
        return queue

    def _fanout(self, message: Message, queue: Queue | None) -> Exchange | None:
        """The exchange of a broadcast where its listeners have no queues to send to."""
        if queue is not None:
            return queue.exchange if queue.exchange and queue.exchange.type == "fanout" else None
        if not message.exchange:
            return None
        exchanges = (one.exchange for one in list(self._app.amqp.queues.values()) if one.exchange)
        wanted = (message.exchange, "fanout")
        return next((one for one in exchanges if (one.name, one.type) == wanted), None)

    def send(
        self,
        message: Message,
        exchange: Exchange | str,
        routing_key: str,
        declare: Sequence[Any] = (),
    ) -> None:
        """Send *message* by way of *exchange* once *declare* is declared, once a connection."""
        conf = self._app.conf
        with self.producer() as producer:
            producer.publish(
                message.body,
                exchange=exchange,
                routing_key=routing_key,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                headers=dict(message.headers),
                declare=list(declare),
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
            self._app.producer_pool.acquire(block=True) as producer,
        ):
            try:
                yield producer
            except ChannelError:
                # What it was sent by may be gone: who comes next declares it anew.
                producer.connection.declared_entities.clear()
                raise

    @contextmanager
    def _away_told(self, connection: Any) -> Iterator[None]:
        away = (*AWAY, *connection.connection_errors, *connection.channel_errors)
        try:
            yield
        except away as error:
            where = broker_shown(self._app)
            msg = f"the broker at {where} did not confirm the message ({error}); is it running?"
            raise unconfirmed(msg, error) from error


class CelerySchedule:
    """Delays that hold nothing: RabbitMQ's own where it has one, else rows of a schedule."""

    def __init__(
        self, app: Celery, publisher: CeleryPublisher, rows: Callable[[], Schedule], clock: Clock
    ) -> None:
        self._app = app
        self._publisher = publisher
        self._rows = rows
        self._clock = clock
        self._seldom = LogThrottle()

    def put(self, copy: Message, at: datetime) -> None:
        """Let *copy* come back at *at*; RabbitMQ rounds to whole seconds, see `whole_seconds`.

        What RabbitMQ refuses waits as a row, where it holds no worker, and is tried again from
        there. Raises BrokerUnavailable or StoreUnavailable, by where it was to wait.
        """
        delay = at - self._clock.now()
        try:
            if delay <= AT_ONCE:
                self._publisher.publish(copy)
                return
            if delay >= SHORTEST_NATIVE and (queue := self._waits_natively(copy)):
                self._send_delayed(copy, queue, delay)
                return
        except BrokerUnavailable as error:
            if not error.refused:
                raise
            self._tell_refused(copy, error)
            if delay <= AT_ONCE:
                at = self._clock.now() + REFUSED_FOR
        self._rows().put(self._publisher.sealed(copy), at)

    def _send_delayed(self, copy: Message, queue: Queue, delay: timedelta) -> None:
        seconds = whole_seconds(copy, delay)
        left = rest_headers(delay - timedelta(seconds=seconds))
        sent = replace(copy, headers={**copy.headers, **left})
        entry = Exchange(ENTRY, type="topic")
        self._publisher.send(sent, entry, key_to(queue, seconds), [way_to(queue)])

    def _waits_natively(self, copy: Message) -> Queue | None:
        """The queue of *copy* if RabbitMQ can delay messages for that queue alone."""
        queue = self._publisher.queue(copy.queue)
        if queue is None or not native_delay(self._app, queue):
            return None
        return queue if leads_to_it_alone(queue, list(self._app.amqp.queues.values())) else None

    def _tell_refused(self, copy: Message, error: BrokerUnavailable) -> None:
        if self._seldom.now(copy.queue):
            _log.error("copy_refused: task %s waits in the store meanwhile: %s", copy.id, error)


class SingleConnectionPublisher(CeleryPublisher):
    """A publisher with one connection of its own, for one thread beside which others fork.

    Celery's pool has locks that a child would inherit as they are at that moment.
    """

    def __init__(self, app: Celery) -> None:
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
            except (MessageNacked, Unroutable):
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
    """The seconds for which RabbitMQ is to hold *copy*: rounded up, but for a last 100 ms.

    A copy says what is left, and its worker sleeps it, so none is later than 0.9 s and its
    way. What only its publisher's ``eta`` delays never comes too early.
    """
    slept = SLEPT if names.ATTEMPT in copy.headers else timedelta(0)
    return max(math.ceil((min(delay, LONGEST_NATIVE) - slept).total_seconds()), 1)


def broker_shown(app: Celery) -> str:
    """The broker's address without its password, for messages."""
    return str(maybe_sanitize_url(str(app.conf.broker_url or "the default address")))


def unconfirmed(msg: str, error: Exception, event_id: str | None = None) -> BrokerUnavailable:
    """The error with the text *msg*; it says whether *error* is a refusal and may pass."""
    refused = is_refusal(error)
    passing = refused and (isinstance(error, MessageNacked) or _is_caused_by(error, MessageNacked))
    return BrokerUnavailable(msg, event_id, refused, passing)


def is_refusal(error: Exception) -> bool:
    """True if *error* is a broker's that is there, or was raised because of one."""
    return isinstance(error, REFUSALS) or refuses(error)


def refuses(error: Exception) -> bool:
    """True if the broker is there and *error* of a publish concerns that message alone."""
    return _is_caused_by(error, REFUSALS)


def refuses_for_good(error: Exception) -> bool:
    """True if waiting does not help *error*, as it does while a queue is full."""
    return refuses(error) and not _is_caused_by(error, MessageNacked)


def came_back(error: Exception) -> bool:
    """True if the broker found no queue that takes the message."""
    return _is_caused_by(error, Unroutable)


def _is_caused_by(error: Exception, kinds: Any) -> bool:
    cause = error.__cause__
    while cause is not None and not isinstance(cause, kinds):
        cause = cause.__cause__
    return cause is not None


def transport_of(app: Celery) -> str:
    """The broker's driver type: ``amqp``, ``redis``, ``SQS``, ``memory`` and so on."""
    return str(app.pool.connection.transport.driver_type)  # the pool's own: none is made for it


def native_delay(app: Celery, queue: Queue) -> bool:
    """True if the broker itself can hold a message for *queue* (RabbitMQ, quorum, topic)."""
    arguments = queue.queue_arguments or {}
    return (
        transport_of(app) == "amqp"
        and arguments.get("x-queue-type") == "quorum"
        and queue.exchange is not None
        and queue.exchange.type != "direct"
    )
