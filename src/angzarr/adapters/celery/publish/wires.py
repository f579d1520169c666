"""Wires carry many messages to a broker in few round trips, and know which of them arrived.

A wire marks each message *confirmed*, or *lost* where the connection ended before the broker
answered, with the error that kept it. It tries nothing twice; its owner does. `ConfirmedWire` waits
once for all confirms of RabbitMQ, `PipelinedWire` sends one pipeline to Redis, and `BatchingWire`
sends batches to SQS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final, Protocol

from amqp.exceptions import (
    AMQPError,
    ChannelError,
    IrrecoverableConnectionError,
    MessageNacked,
    RecoverableConnectionError,
)
from kombu import Producer
from kombu.transport import pyamqp

from angzarr.delivery.handlers import Subscription
from angzarr.errors import Unroutable


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """The message of one event to one handler."""

    to: Subscription
    #: Written on the broker, for certain.
    confirmed: bool = False
    #: In flight when a connection ended: it may be on the broker.
    lost: bool = False
    #: Why it is not confirmed, if it was tried.
    error: Exception | None = None
    body: Any = None
    #: What kombu's ``Producer.publish`` takes besides the body.
    options: Mapping[str, Any] = field(default_factory=dict)


class NoQueue(RecoverableConnectionError, Unroutable):
    """Makes kombu connect anew and declare the queue once more."""


def no_queue(exchange: object, key: str) -> NoQueue:
    """The error of a message that no queue takes."""
    return NoQueue(f"no queue takes {key!r} at the exchange {str(exchange)!r}")


class Wire(Protocol):
    """Carries messages to the broker and waits until they are there."""

    def carry(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send *messages*; raises what the broker or the connection refused, after marking all."""

    def tell(self, send: Callable[[Any], None]) -> None:
        """Let *send* publish with the producer it is given, and wait."""

    def close(self) -> None:
        """Let go; nothing is sent."""


def wire_for(producer: Any) -> Wire | None:
    """A wire on *producer*'s connection, or None where messages go one by one."""
    channel = producer.channel
    if isinstance(channel, pyamqp.Channel):
        confirms = channel.connection.server_capabilities.get("publisher_confirms")
        return ConfirmedWire(channel.connection) if confirms else None
    if hasattr(channel, "send_collected"):
        return BatchingWire(channel, producer)
    batches = getattr(channel, "create_publish_batch", None)
    if batches is None or not getattr(channel, "supports_batch_publish", True):
        return None
    return PipelinedWire(channel, producer)


#: Seconds without one confirm after which RabbitMQ is taken to confirm nothing more: a broker
#: that is out of memory or disk reads nothing and says nothing.
PATIENCE: Final = 30.0


class ConfirmedWire:
    """RabbitMQ: publishes do not wait for each other, and every one is confirmed at the end.

    A message that no queue takes comes back and counts as refused; RabbitMQ confirms it as well.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._channel: Any = None

    def carry(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send *messages*; raises MessageNacked, RecoverableConnectionError (no queue) or the end.

        If the broker closes the channel because of one of several, the others go one by one.
        """
        try:
            self._carry(messages)
        except ChannelError as error:
            left = [message for message in messages if not message.confirmed]
            if len(left) == 1:
                left[0].lost = False  # alone on its way: this is what the broker refused
                left[0].error = error
                raise
            refused: Exception = error
            for message in left:
                try:
                    self.carry([message])
                except ChannelError as own:
                    refused = own
            if not all(message.confirmed for message in left):
                raise refused from None

    def tell(self, send: Callable[[Any], None]) -> None:
        """Send what *send* publishes and wait for the confirms."""
        opened = self._opened()
        send(opened.producer)
        opened.wait()

    def close(self) -> None:
        """Do nothing: the channel is kept for the next batch on this connection."""

    def _opened(self) -> _Confirming:
        if self._channel is None:
            self._channel = _channel_on(self._connection)
        opened: _Confirming = self._channel
        return opened

    def _carry(self, messages: Sequence[OutgoingMessage]) -> None:
        opened = self._opened()
        try:
            opened.publish(messages)
            opened.wait()
        except BaseException as error:
            self._channel = None
            for message in opened.in_flight():
                message.lost = True
                message.error = error if isinstance(error, Exception) else None
            if isinstance(error, ChannelError):
                opened.close()  # py-amqp has opened it anew, and not for confirms
            else:
                # Without a farewell: half a frame may be out, and a mute broker answers none.
                self._connection.collect()
            raise
        if opened.refused:
            raise opened.refused.pop()


#: The attribute by which a connection keeps its channel for batches.
_KEPT: Final = "angzarr_batches"


def _channel_on(connection: Any) -> _Confirming:
    """The channel of *connection* for batches: to open one for each costs three round trips.

    Only one thread uses a connection of the pool at a time.
    """
    kept: _Confirming | None = getattr(connection, _KEPT, None)
    if kept is None or not kept.is_clean():
        kept = _Confirming(connection)
        setattr(connection, _KEPT, kept)
    try:
        kept.begin()
    except BaseException:
        connection.collect()
        raise
    return kept


class _Confirming:
    """One channel of its own in confirm mode; RabbitMQ counts its messages from 1."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._channel = connection.channel()
        self._channel.confirm_select()
        self._publish = type(self._channel).basic_publish  # that of the class waits for nothing
        self._channel.basic_publish = self._count
        self._channel.events["basic_ack"].add(self._on_ack)
        self._channel.events["basic_nack"].add(self._on_nack)
        self._channel.events["basic_return"].add(self._on_return)
        self._tag = 0
        self._message: OutgoingMessage | None = None
        self._open: dict[int, OutgoingMessage | None] = {}
        self._returned: dict[str, Exception] = {}
        self._patience = PATIENCE
        self.producer = Producer(self._channel, auto_declare=False)
        self.refused: list[Exception] = []

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send *messages*, wait for no confirm; a broker that reads nothing is a time-out."""
        self._patience = messages[0].options.get("confirm_timeout") or PATIENCE
        with self._connection.transport.having_timeout(self._patience):
            for self._message in messages:
                self.producer.publish(self._message.body, **self._message.options)
        self._message = None

    def wait(self) -> None:
        """Wait until nothing is in flight; raises if the broker is silent for too long."""
        until, waiting = time.monotonic() + self._patience, len(self._open)
        while self._open:
            left = until - time.monotonic()
            if left <= 0:
                self._give_up()
            with suppress(TimeoutError):
                self._connection.blocking_read(timeout=left)
            if len(self._open) < waiting:
                until, waiting = time.monotonic() + self._patience, len(self._open)

    def is_clean(self) -> bool:
        """True if it is open, and nothing of a batch before is in flight."""
        return (
            bool(self._channel.is_open) and self._channel.connection is not None and not self._open
        )

    def begin(self) -> None:
        """Forget the batch before, and read what came since: the end of the connection, maybe.

        Raises that end, of which a batch would only learn amid its messages.
        """
        self._returned = {}
        self.refused = []
        with suppress(TimeoutError):
            while True:
                self._connection.blocking_read(timeout=0)

    def in_flight(self) -> list[OutgoingMessage]:
        """The messages that were sent and neither confirmed nor refused."""
        return [message for message in self._open.values() if message is not None]

    def close(self) -> None:
        """Close the channel; a connection that is gone has closed it already."""
        with suppress(OSError, AMQPError):
            self._channel.close()

    def _count(self, sent: Any, **options: Any) -> Any:
        self._tag += 1
        self._open[self._tag] = self._message
        return self._publish(self._channel, sent, **options)

    def _give_up(self) -> None:
        msg = f"it confirmed nothing for {self._patience:g} s; is it out of memory or disk?"
        raise IrrecoverableConnectionError(msg)

    def _on_return(self, error: Exception, _exchange: str, _key: str, returned: Any) -> None:
        """Note what comes back; its confirm follows."""
        self._returned[returned.properties["correlation_id"]] = error

    def _on_ack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 - py-amqp's signature
        for message in self._end(tag, multiple):
            message.confirmed = message.options["correlation_id"] not in self._returned
            if not message.confirmed:
                way = message.options
                self._refuse(message, no_queue(way["exchange"], way["routing_key"]))

    def _on_nack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 - py-amqp's signature
        for message in self._end(tag, multiple):
            self._refuse(
                message, MessageNacked(f"{message.to.handler}: refused, is its queue full?")
            )

    def _refuse(self, message: OutgoingMessage, error: Exception) -> None:
        message.error = error
        self.refused.append(error)

    def _end(self, tag: int, multiple: bool) -> list[OutgoingMessage]:  # noqa: FBT001 - py-amqp's signature
        """The messages that *tag* ends: the one it names, and with *multiple* all before it."""
        if multiple:
            messages = [self._open.pop(n) for n in list(self._open) if n <= tag]
        else:
            messages = [self._open.pop(tag, None)]
        return [message for message in messages if message is not None]


#: kombu's batches shall not send by themselves.
_UNBOUNDED: Final = 10**9


class PipelinedWire:
    """Redis: one pipeline for many messages, and a reply to each command."""

    def __init__(self, channel: Any, producer: Any) -> None:
        self._channel = channel
        self._producer = producer

    def carry(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send *messages* in one round trip; raises the first error that Redis replied.

        Redis is asked first whether it is there, so that nothing is uncertain if it is away.
        """
        with self._channel.conn_or_acquire() as client:
            client.ping()
        with closing(self._channel.create_publish_batch(max_size=_UNBOUNDED)) as batch:
            commands = self._put(batch, messages)
            try:
                replies = iter(batch.pipeline.execute(raise_on_error=False))
            except BaseException as error:
                for message in messages:
                    message.lost = True
                    message.error = error if isinstance(error, Exception) else None
                raise
        for message, count in zip(messages, commands, strict=True):
            errors = [reply for _ in range(count) if isinstance(reply := next(replies), Exception)]
            way = message.options
            if not count:
                errors = [no_queue(way["exchange"], way["routing_key"])]
            message.confirmed, message.error = not errors, errors[0] if errors else None
        _raise_first(messages)

    def _put(self, batch: Any, messages: Sequence[OutgoingMessage]) -> list[int]:
        """Put *messages* into the pipeline and return how many commands each of them is."""
        prepare = self._channel.prepare_message
        inlet = SimpleNamespace(prepare_message=prepare, basic_publish=batch.publish)
        producer = Producer(inlet, auto_declare=False)
        ends = [0]
        for message in messages:
            producer.publish(message.body, **message.options)
            ends.append(len(batch.pipeline))
        return [end - begin for begin, end in pairwise(ends)]

    def tell(self, send: Callable[[Any], None]) -> None:
        """Send what *send* publishes in one round trip."""
        with self._producer.batch(max_size=_UNBOUNDED):
            send(self._producer)

    def close(self) -> None:
        """Do nothing: the channel is the producer's."""


class BatchingWire:
    """SQS: batches of up to ten messages, each with an answer of its own."""

    def __init__(self, channel: Any, producer: Any) -> None:
        self._channel = channel
        self._producer = producer

    def carry(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send *messages*; raises the first error that SQS, or the way to it, gave for one.

        A message whose queue cannot even be found is refused, and the others are sent.
        """
        with self._channel.collecting() as requests:
            ends = [0, *(self._collect(message, requests) for message in messages)]
        answers = self._channel.send_collected(requests)
        for message, (begin, end) in zip(messages, pairwise(ends), strict=True):
            if message.error is not None:
                continue
            failed = [one for one in answers[begin:end] if one.error is not None]
            message.lost |= any(one.lost for one in failed)
            message.confirmed, message.error = not failed, failed[0].error if failed else None
        _raise_first(messages)

    def _collect(self, message: OutgoingMessage, requests: list[Any]) -> int:
        """Add the requests of *message* and return how many there are now."""
        message.error = None
        begin = len(requests)
        try:
            self._producer.publish(message.body, **message.options)
        except ChannelError as error:
            del requests[begin:]
            message.error = error
        way = message.options
        if message.error is None and begin == len(requests) and not self._is_fanout(way):
            message.error = no_queue(way["exchange"], way["routing_key"])
        return len(requests)

    def _is_fanout(self, way: Mapping[str, Any]) -> bool:
        """True if SNS has taken the message: it goes at once, to any number of queues."""
        named = getattr(way["exchange"], "name", way["exchange"])
        return bool(named) and self._channel.typeof(named).type == "fanout"

    def tell(self, send: Callable[[Any], None]) -> None:
        """Let *send* send at once."""
        send(self._producer)

    def close(self) -> None:
        """Do nothing: the channel is the producer's."""


def _raise_first(messages: Sequence[OutgoingMessage]) -> None:
    """Raise the first error of *messages*: one of the broker's absence if there is one."""
    errors = [one.error for one in messages if not one.confirmed and one.error is not None]
    refused = [error for error in errors if isinstance(error, ChannelError)]
    away = [error for error in errors if not isinstance(error, ChannelError)]
    for error in (*away, *refused):
        raise error
