"""A channel to RabbitMQ with reliable, bounded confirms, and acknowledgements in batches.

RabbitMQ confirms a mandatory message that no queue takes, after it has returned it. A broker that
is out of memory or disk reads and says nothing. py-amqp leaves the confirm of a returned message
unread, so the next publish would take it for its own, and it waits for confirms without an end.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, Final

from amqp.basic_message import Message
from amqp.exceptions import (
    IrrecoverableConnectionError,
    MessageNacked,
    RecoverableConnectionError,
)
from kombu.transport import pyamqp

from angzarr.adapters.rabbitmq.py_amqp import NOT_READY_AFTER
from angzarr.errors import Unroutable
from angzarr.events import headers as names
from angzarr.runtime.message_line import MessageInLine

_log = logging.getLogger("angzarr.transport")

#: Seconds until RabbitMQ has confirmed a message, where its sender does not say otherwise.
CONFIRMED_WITHIN: Final = 30.0
#: Seconds that it may take to answer anything else, or to read what is written to it.
ANSWERED_WITHIN: Final = 30.0
#: Seconds that it may take to answer a farewell: who stops has little time.
FAREWELL_WITHIN: Final = 2.0
#: The delivery mode of what may be forgotten with the broker.
_TRANSIENT: Final = 1


class ReturnedMessage(RecoverableConnectionError, Unroutable):
    """Makes kombu connect anew and declare the queue once more."""


class RabbitMQChannel(pyamqp.Channel):
    """A channel whose confirmed publishes know what came back, and which waits for ever nowhere."""

    _confirm_selected: bool
    #: The most that is delivered and not acknowledged; 0: no limit.
    prefetch_count = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._returned = False
        self._sent = 0  # as RabbitMQ counts what it got since it was asked for confirms
        self._confirmed: bool | None = None  # or refused; None while it has said nothing
        #: Tags of what was delivered and neither acknowledged nor rejected, in their order.
        self._open_tags: dict[int, None] = {}
        #: Tags to acknowledge with the next `send_acks`.
        self._done_tags: set[int] = set()
        self.events["basic_return"].add(self._on_return)
        self.events["basic_ack"].add(partial(self._on_answer, True))  # noqa: FBT003
        self.events["basic_nack"].add(partial(self._on_answer, False))  # noqa: FBT003

    def basic_publish(self, msg: Any, *args: Any, **options: Any) -> Any:
        """Publish without a confirm.

        While RabbitMQ takes nothing, what is of the moment only (events, answers to remote
        control) is dropped: it would hold up who sends it, which may be a worker's only loop.
        """
        if msg.properties.get("delivery_mode") == _TRANSIENT:
            if self._is_blocked():
                return None
            options["timeout"] = options.get("timeout") or ANSWERED_WITHIN
        return self._basic_publish(msg, *args, **options)

    def basic_publish_confirm(
        self, msg: Any, exchange: str = "", routing_key: str = "", **options: Any
    ) -> Any:
        """Publish and wait for the confirm, as long as the option ``confirm_timeout`` says.

        Raises RecoverableConnectionError if it came back, MessageNacked if its queue refuses it,
        and IrrecoverableConnectionError if RabbitMQ said nothing in time: sent or not.
        """
        patience = options.pop("confirm_timeout", None) or CONFIRMED_WITHIN
        until = time.monotonic() + patience
        if not self._confirm_selected:
            self._confirm_selected = True
            self.confirm_select()
            self._sent = 0  # also where py-amqp has opened a channel anew that RabbitMQ closed
        self._returned, self._confirmed = False, None
        options["timeout"] = options.get("timeout") or patience
        answer = self._basic_publish(msg, exchange, routing_key, **options)
        self._sent += 1  # not before: what cannot be written is not counted there either
        self._await_confirm(until, patience)
        if self._returned:
            # The queue was deleted: kombu must not think that it has declared it.
            self.connection.client.declared_entities.clear()
            msg = f"no queue takes {routing_key!r} at the exchange {str(exchange)!r}"
            raise ReturnedMessage(msg)
        return answer

    def basic_consume(self, queue: str = "", *args: Any, **options: Any) -> Any:
        """Consume; a callback with `redelivered` makes messages of what came before itself."""
        callback = options.get("callback")
        if not options.get("no_ack") and hasattr(callback, "redelivered"):
            options["callback"] = partial(self._deliver, callback)
        return super().basic_consume(queue, *args, **options)

    def away(self) -> str:
        """Say that RabbitMQ does not answer; empty: it does, or is silent for a short while."""
        silence = 0.0 if self.connection is None else self.connection.answer_check.silence()
        if silence < NOT_READY_AFTER:
            return ""
        return f"RabbitMQ has said nothing for {silence:.0f} s, although it was asked"

    def message_to_python(self, raw: Any) -> Any:
        """*raw* as kombu's message; one that is it already stays, as elsewhere in kombu."""
        return raw if isinstance(raw, self.Message) else super().message_to_python(raw)

    def basic_cancel(self, consumer_tag: str, *args: Any, **options: Any) -> Any:
        """Consume no more; what its loop has read and not handed out goes back."""
        cancelled = super().basic_cancel(consumer_tag, *args, **options)
        if self.connection is not None and self.connection.arrivals is not None:
            self.connection.arrivals.reject(self, consumer_tag)
        return cancelled

    def basic_qos(self, prefetch_size: int, prefetch_count: int, *args: Any, **options: Any) -> Any:
        """Limit what is delivered and not acknowledged."""
        self.prefetch_count = prefetch_count
        return super().basic_qos(prefetch_size, prefetch_count, *args, **options)

    def basic_get(self, *args: Any, **options: Any) -> Any:
        """One message, or None."""
        message = super().basic_get(*args, **options)
        if message is not None:
            self._open_tags[message.delivery_info["delivery_tag"]] = None
        return message

    def basic_ack(self, delivery_tag: int, multiple: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002 - kombu's
        """Acknowledge a message: where a loop turns this channel, with others before it waits."""
        connection = self.connection
        if connection is not None and connection.arrivals is not None and not multiple:
            self._done_tags.add(delivery_tag)
            connection.arrivals.acknowledging.add(self)
            return
        self.send_acks()
        super().basic_ack(delivery_tag, multiple, **options)
        for tag in [delivery_tag, *(tag for tag in self._open_tags if multiple)]:
            if tag <= delivery_tag:
                self._open_tags.pop(tag, None)

    def basic_reject(self, delivery_tag: int, *args: Any, **options: Any) -> None:
        """Return a message, or refuse it."""
        super().basic_reject(delivery_tag, *args, **options)
        self._open_tags.pop(delivery_tag, None)

    def send_acks(self) -> None:
        """Acknowledge in one write what `basic_ack` has noted: in one frame what is in a row."""
        done, self._done_tags = self._done_tags, set()
        if not done or self.connection is None:
            return
        row = list(takewhile(done.__contains__, self._open_tags))
        with self.connection.write_buffer.buffered():
            if row:
                super().basic_ack(row[-1], multiple=len(row) > 1)
            for tag in sorted(done.difference(row)):
                super().basic_ack(tag)
        for tag in done:
            self._open_tags.pop(tag, None)

    def _on_basic_deliver(self, consumer_tag: str, delivery_tag: int, *said: Any) -> None:
        if consumer_tag not in self.no_ack_consumers:
            self._open_tags[delivery_tag] = None
        super()._on_basic_deliver(consumer_tag, delivery_tag, *said)

    def deliver(
        self, said: tuple[str, int, bool, str, str], properties: dict[str, Any], body: Any
    ) -> None:
        """Take a delivery that was read as a whole, as if py-amqp had read it frame by frame."""
        if self.auto_decode and "content_encoding" in properties:
            try:
                body = body.decode(properties["content_encoding"])
            except Exception as error:  # noqa: BLE001 - it stays as it came, as in py-amqp
                _log.debug("body_not_decoded: %r", error)
        message = Message(body)
        message.properties = properties
        self._on_basic_deliver(*said, message)

    def _deliver(self, callback: Any, raw: Any) -> Any:
        if raw.delivery_info["redelivered"]:
            message, reread = raw, partial(self._reread, callback, raw)
        else:
            message, reread = self.message_to_python(raw), None
        connection = self.connection
        line = connection and (connection.arrivals or connection.drained)
        if line is None:
            return callback(message if reread is None else reread())
        consumer = raw.delivery_info["consumer_tag"]
        return line.add(
            MessageInLine(self, consumer, callback, message, reread), self.prefetch_count
        )

    def _reread(self, callback: Any, raw: Any) -> Any:
        """The message *raw*, which came before, read with care."""
        make = partial(self.message_to_python, raw)
        return callback.redelivered(identity_of(raw), make, partial(self._packed, raw))

    def _packed(self, raw: Any) -> Any:
        """*raw* as kombu's message, its body as it came."""
        said = raw.properties
        raw.properties = {**said, "application_headers": {}}
        try:
            message = self.message_to_python(raw)
        finally:
            raw.properties = said
        message.properties, message.headers = said, said.get("application_headers") or {}
        return message

    def close(self, *args: Any, **options: Any) -> None:
        """Acknowledge what is to be, and close; with a RabbitMQ that reads nothing, its connection.

        What its loop has read and not handed out goes back.
        """
        if self.connection is not None and self.connection.blocked:
            self.connection.collect()
            return
        if self.is_open:
            self.send_acks()
        super().close(*args, **options)

    def collect(self) -> None:
        """Forget the channel; RabbitMQ gives to others what was not acknowledged on it."""
        connection, self._done_tags = self.connection, set()
        super().collect()
        self._open_tags.clear()
        if connection is not None and connection.arrivals is not None:
            connection.arrivals.forget(self)

    def wait(
        self, method: Any, callback: Any = None, timeout: float | None = None, **options: Any
    ) -> Any:
        """Wait for an answer; raises TimeoutError, as if the connection were lost."""
        limit = timeout or patience_of(self, self.connection)
        return super().wait(method, callback, limit, **options)

    def _await_confirm(self, until: float, patience: float) -> None:
        # Not py-amqp's wait: whatever RabbitMQ says meanwhile, its heartbeats too, prolongs that.
        while self._confirmed is None:
            if self.connection is None:
                msg = "connection already closed"
                raise RecoverableConnectionError(msg)
            left = until - time.monotonic()
            if left <= 0:
                self._give_up(patience)
            with suppress(TimeoutError):
                self.connection.drain_events(timeout=left)
        if not self._confirmed:
            raise MessageNacked

    def _give_up(self, patience: float) -> None:
        why = "it is out of memory or disk" if self.connection.blocked else "it is mute"
        # Without a farewell, which may not be read either. Who publishes next connects anew.
        self.connection.collect()
        msg = f"RabbitMQ confirmed nothing for {patience:g} s: {why}"
        raise IrrecoverableConnectionError(msg)

    def _is_blocked(self) -> bool:
        """True if RabbitMQ has said that it takes nothing, and not that this is over."""
        if self.connection is None or not self.connection.blocked:
            return False
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0)
        return self.connection is not None and self.connection.blocked

    def _on_return(self, *_: Any) -> None:
        self._returned = True

    def _on_answer(self, confirmed: bool, tag: int, _multiple: bool) -> None:  # noqa: FBT001
        """Take what is said of the last message; those before it were given up."""
        if tag == self._sent:
            self._confirmed = confirmed


def identity_of(raw: Any) -> bytes:
    """The identity of the message *raw* in its queue; a replay has another one."""
    said = raw.properties
    replay = (said.get("application_headers") or {}).get(names.REPLAY)
    told = [said.get("message_id"), said.get("correlation_id")]
    told.append(replay if isinstance(replay, int) else None)
    body = raw.body if isinstance(raw.body, bytes) else str(raw.body).encode("utf-8", "replace")
    return repr(told).encode("utf-8", "replace") + body


def patience_of(channel: Any, connection: Any) -> float:
    """For how long *channel*, which may be the connection itself, waits for an answer."""
    limit = FAREWELL_WITHIN if channel.is_closing else ANSWERED_WITHIN
    return min(limit, getattr(connection, "read_timeout", None) or limit)
