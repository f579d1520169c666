"""Publishes many events in few round trips, and says exactly which arrived if it fails."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, TypeAlias

from amqp.exceptions import ChannelError
from celery import Celery, signals
from kombu.exceptions import OperationalError

from angzarr.adapters.celery.publish.amqp import AngzarrAMQP
from angzarr.adapters.celery.publish.message_template import (
    MessageCapture,
    MessageTemplate,
    can_use_templates,
)
from angzarr.adapters.celery.publish.offloading_producer import OffloadingProducer
from angzarr.adapters.celery.publish.outgoing_event import UNSENDABLE, OutgoingEvent, account
from angzarr.adapters.celery.publish.publisher import AWAY, broker_shown
from angzarr.adapters.celery.publish.template_sender import TemplateSender
from angzarr.adapters.celery.publish.wires import OutgoingMessage, Wire, wire_for
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.handlers import Subscription
from angzarr.errors import PayloadStoreUnavailable
from angzarr.events import headers as names
from angzarr.events.event import Event, task_id_for

_log = logging.getLogger("angzarr.publishing")

#: Most messages, and most characters of data, that are in flight at once.
MOST_MESSAGES: Final = 250
MOST_TEXT: Final = 2**20
#: Options by which a caller chooses the way itself: such events go one by one.
OWN_WAY: Final = frozenset({"producer", "publisher", "connection", "router"})

#: Opens a span around the publish of an event and gives its ``traceparent``.
Span: TypeAlias = Callable[[Event], AbstractContextManager[str | None]]
#: Sends one event to one handler by Celery's ``send_task``, with these options besides.
Send: TypeAlias = Callable[[Event, Subscription, Mapping[str, Any]], None]


def send_batch(
    app: Celery,
    outgoing: Sequence[OutgoingEvent],
    options: Mapping[str, Any],
    *,
    span: Span,
    send: Send,
) -> bool:
    """Send *outgoing* in order; False, and nothing sent, where they must go one by one.

    Raises BrokerUnavailable if nothing was sent, NotAllPublished if not everything was confirmed.
    """
    if not any(item.messages for item in outgoing) or OWN_WAY & options.keys():
        return False
    if type(app.amqp) is not AngzarrAMQP or not can_use_templates(app):
        return False
    where = broker_shown(app)
    connection = app.pool.connection
    away = (*AWAY, *connection.connection_errors, *connection.channel_errors)
    try:
        with app.producer_pool.acquire(block=True) as producer:
            batch = BatchSender(app, producer, span, away)
            if not batch.connect(options):
                return False
            batch.make_templates(outgoing, options, send)
            try:
                for chunk in chunks(outgoing):
                    batch.send(chunk)
            except ChannelError:
                # What it was sent by may be gone: who comes next declares it anew.
                producer.connection.declared_entities.clear()
                raise
            batch.close()
    except (*away, *UNSENDABLE, PayloadStoreUnavailable) as error:
        told = account(outgoing, error, where)
        if told is error:
            raise
        raise told from error
    return True


class CelerySender:
    """Sends by *app*: one task as its ``send_task`` does, many events in few round trips.

    Whatever replaces *own*, the app's ``send_task``, gets every task one by one.
    """

    def __init__(self, app: Celery, own: Callable[..., Any]) -> None:
        self._app = app
        self._templates = TemplateSender(app, own)

    def send(self, name: str, **options: Any) -> None:
        """Send one task; raises what the app's ``send_task`` and kombu raise."""
        if not self._templates.send(name, options):
            self._app.send_task(name, **options)

    def send_many(
        self,
        outgoing: Sequence[OutgoingEvent],
        options: Mapping[str, Any],
        *,
        span: Span,
        send: Send,
    ) -> bool:
        """Send as `send_batch` does; False, and nothing sent, where they must go one by one."""
        if not self._templates.is_apps_own():
            return False
        return send_batch(self._app, outgoing, options, span=span, send=send)

    @property
    def broker_shown(self) -> str:
        """The broker's address without its password."""
        return broker_shown(self._app)


def chunks(outgoing: Sequence[OutgoingEvent]) -> Iterator[list[OutgoingEvent]]:
    """Cut *outgoing* into what may be in flight at once; each has at least one event."""
    chunk: list[OutgoingEvent] = []
    count = text = 0
    for item in outgoing:
        added = len(item.text) * len(item.messages)
        if chunk and (count + len(item.messages) > MOST_MESSAGES or text + added > MOST_TEXT):
            yield chunk
            chunk, count, text = [], 0, 0
        chunk.append(item)
        count += len(item.messages)
        text += added
    if chunk:
        yield chunk


class BatchSender:
    """Writes and sends events over one producer, which no other thread uses meanwhile.

    A chunk whose connection ends is sent again as Celery's retry policy says, but for what was
    confirmed: handlers that get a message twice run once.
    """

    def __init__(
        self, app: Celery, producer: Any, span: Span, away: tuple[type[Exception], ...]
    ) -> None:
        self._app = app
        self._producer = producer
        self._span = span
        self._away = away
        self._wire: Wire | None = None
        self._templates: dict[Subscription, MessageTemplate] = {}
        self._domains: dict[Subscription, str | None] = {}
        self._any: Any = None

    def connect(self, options: Mapping[str, Any]) -> bool:
        """Connect; False where this broker's messages go one by one."""
        conf = self._app.conf
        retry = options.get("retry")
        if conf.task_publish_retry if retry is None else retry:
            policy = {**conf.task_publish_retry_policy, **(options.get("retry_policy") or {})}
            # As kombu does: else it tries for ever to connect to a broker that is away.
            self._producer.connection.transport_options.update(policy)
        self._wire = wire_for(self._producer)
        return self._wire is not None

    def make_templates(
        self, outgoing: Sequence[OutgoingEvent], options: Mapping[str, Any], send: Send
    ) -> None:
        """Have Celery write one message for each handler; raises what it would raise."""
        for item in outgoing:
            for message in item.messages:
                if message.to not in self._templates:
                    capture = MessageCapture(self._producer)
                    drawn = {**options, "producer": capture, "add_to_parent": False}
                    send(item.event, message.to, drawn)
                    self._templates[message.to] = self._any = MessageTemplate(self._app, capture)
                    handler = runtime_of(self._app).handlers.get(message.to.handler)
                    self._domains[message.to] = handler.domain if handler is not None else None

    def send(self, chunk: Sequence[OutgoingEvent]) -> None:
        """Send one chunk; raises what ended it after marking every message."""
        event_sends = [_EventSend(item, self._span) for item in chunk]
        messages = [message for item in chunk for message in item.messages]
        try:
            for event_send in event_sends:
                self._write(event_send)
            if messages:
                self._carry(messages)
        except BaseException as error:
            self._wire = None
            self._end(event_sends, error)
            raise
        self._end(event_sends, None)
        self._tell_task_sent(event_sends)
        for message in messages:
            message.body, message.options = None, {}  # on the broker now

    def close(self) -> None:
        """Let go of the wire; what was sent stays sent."""
        if self._wire is not None:
            self._wire.close()

    def revive(self, channel: Any) -> None:
        """Go on over a new connection (kombu's ``ensure`` calls it)."""
        self._producer.revive(channel)
        self._wire = None

    # -- writing -------------------------------------------------------------------------------

    def _write(self, event_send: _EventSend) -> None:
        event = event_send.item.event
        event_headers = names.to_headers(event)
        for message in event_send.item.messages:
            domain = None if event.domain else self._domains[message.to]
            own = {**event_headers, names.DOMAIN: domain} if domain else event_headers
            self._write_message(event_send, message, self._templates[message.to], own)

    def _write_message(
        self,
        event_send: _EventSend,
        message: OutgoingMessage,
        template: MessageTemplate,
        own_headers: Mapping[str, Any],
    ) -> None:
        data, way = event_send.item.event.data, template.destination.options
        task_id = task_id_for(event_send.item.event.id, message.to.handler)
        headers = template.headers(task_id, data, own_headers)
        properties = template.properties(task_id)
        if signals.before_task_publish.receivers:
            message.body = template.body(data)
            declare, policy = list(template.destination.declare), dict(template.policy)
            event_send.run(
                signals.before_task_publish.send,
                sender=template.task, body=message.body, exchange=way["exchange"],
                routing_key=way["routing_key"], declare=declare, headers=headers,
                properties=properties, retry_policy=policy,
            )  # fmt: skip
        else:
            message.body = template.text(event_send.item.text) or template.body(data)
        way = template.way(as_text=isinstance(message.body, str))
        message.options = {**way, "headers": headers, **properties}
        if isinstance(self._producer, OffloadingProducer):
            message.body, message.options = self._producer.prepared(message.body, message.options)

    # -- sending -------------------------------------------------------------------------------

    def _carry(self, messages: Sequence[OutgoingMessage]) -> None:
        carry: Callable[[Sequence[OutgoingMessage]], None] = self._try
        if self._any.retry:
            carry = self._producer.connection.ensure(self, self._try, **self._any.policy)
        carry(messages)

    def _try(self, messages: Sequence[OutgoingMessage]) -> None:
        wire = self._wire = self._wire or wire_for(self._producer)
        if wire is None:
            msg = "the broker that took its place takes no batches"
            raise OperationalError(msg)
        refused = self._declare_queues()
        open_ones = [message for message in messages if not message.confirmed]
        for message in open_ones:
            message.error = refused.get(message.to)
        if sendable := [message for message in open_ones if message.error is None]:
            wire.carry(sendable)
        for message in open_ones:
            if message.to in refused:
                raise refused[message.to]

    def _declare_queues(self) -> dict[Subscription, ChannelError]:
        """Declare where messages go; returns what the broker refused, and for whom."""
        refused: dict[Subscription, ChannelError] = {}
        for to, template in self._templates.items():
            try:
                for entity in template.destination.declare:
                    self._producer.maybe_declare(entity)
            except ChannelError as error:
                refused[to] = error
        return refused

    # -- telling -------------------------------------------------------------------------------

    def _tell_task_sent(self, event_sends: Sequence[_EventSend]) -> None:
        """Send Celery's ``task-sent`` events; they are for monitors, the tasks are on their way."""
        told = [
            (template, fields)
            for event_send in event_sends
            for message in event_send.item.messages
            if (template := self._templates[message.to])
            and (fields := template.task_sent(message.options["headers"]))
        ]
        if not told or self._wire is None:
            return
        default = self._app.events.Dispatcher(enabled=False)

        def send(producer: Any) -> None:
            for template, fields in told:
                (template.dispatcher or default).publish("task-sent", fields, producer)

        try:
            self._wire.tell(send)
        except self._away as error:
            _log.warning("task_sent_events_lost: %s events, %s", len(told), error)
            self._wire = None

    def _end(self, event_sends: Sequence[_EventSend], error: BaseException | None) -> None:
        for event_send in event_sends:
            for message in event_send.item.messages:
                if message.confirmed:
                    self._after(event_send, message, self._templates[message.to])
            event_send.end(None if event_send.item.confirmed else error)

    def _after(
        self, event_send: _EventSend, message: OutgoingMessage, template: MessageTemplate
    ) -> None:
        """Send Celery's signals for a message that is on the broker."""
        headers, data = message.options["headers"], event_send.item.event.data
        if signals.after_task_publish.receivers:
            event_send.run(
                signals.after_task_publish.send,
                sender=template.task,
                body=message.body if isinstance(message.body, tuple) else template.body(data),
                headers=headers,
                exchange=message.options["exchange"],
                routing_key=message.options["routing_key"],
            )
        if signals.task_sent.receivers:  # deprecated, and sent by Celery all the same
            event_send.run(
                signals.task_sent.send,
                sender=template.task, task_id=headers["id"], task=template.task, args=[data],
                kwargs={}, eta=headers["eta"], taskset=headers["group"],
            )  # fmt: skip


class _EventSend:
    """One event while it is sent: its span, and the context in which its signals run.

    A tracer that listens to Celery opens a span before a publish and ends it after. In a context
    of its own the span of one message is not the parent of the next.
    """

    __slots__ = ("_context", "_span", "item")

    def __init__(self, item: OutgoingEvent, span: Span) -> None:
        self.item = item
        self._context = contextvars.copy_context()
        self._span = span(item.event)
        traceparent = self._context.run(self._span.__enter__)
        if traceparent != item.event.traceparent:
            item.event = replace(item.event, traceparent=traceparent)

    def run(self, call: Callable[..., Any], **arguments: Any) -> None:
        """Call in the context of this send."""
        self._context.run(call, **arguments)

    def end(self, error: BaseException | None) -> None:
        """End the span; *error* is why the event was not confirmed."""
        why = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        self._context.run(self._span.__exit__, *why)
