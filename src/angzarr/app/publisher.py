"""Publishing: an event becomes one message for each of its handlers (spec D1)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from amqp.exceptions import PreconditionFailed
from kombu.exceptions import EncodeError

from angzarr.adapters.celery.options import check_send_options
from angzarr.adapters.celery.publish.amqp import CURE
from angzarr.adapters.celery.publish.batch import CelerySender
from angzarr.adapters.celery.publish.message_template import json_of
from angzarr.adapters.celery.publish.outgoing_event import UNSENDABLE, OutgoingEvent, account
from angzarr.adapters.celery.publish.publisher import AWAY, is_refusal, unconfirmed
from angzarr.adapters.celery.publish.wires import OutgoingMessage
from angzarr.clock import SystemClock
from angzarr.configuration.reader import ConfigurationReader
from angzarr.delivery.context import RUNNING
from angzarr.delivery.handlers import (
    Subscription,
    check_data,
    check_place,
    in_domain,
    subscriptions,
)
from angzarr.errors import (
    AngzarrError,
    BrokerUnavailable,
    NoSubscriber,
    PayloadStoreUnavailable,
    PublishError,
    PublishIncomplete,
    UnserializableEvent,
)
from angzarr.events.event import Event, Priority, task_id_for
from angzarr.events.headers import DOMAIN, EVENT_ID, OwnHeaders, to_headers
from angzarr.events.publication import Pins, Publication, refuse_sequence
from angzarr.wiring import stores as wiring
from angzarr.wiring.context import AppContext

#: What `publish` itself takes.
PUBLISH = (*(one.name for one in fields(Publication)), "allow_no_subscriber", "check")
#: Options by which a sender says itself where a task goes.
_ADDRESS = ("queue", "exchange", "routing_key")
#: Positional arguments of `send_task` before the task id: args, kwargs, countdown, eta.
_BEFORE_TASK_ID = 4


class EventPublisher:
    """Sends events to their handlers by way of *sender*."""

    def __init__(
        self,
        context: AppContext,
        sender: CelerySender,
        configuration: Callable[[], ConfigurationReader],
    ) -> None:
        self._context = context
        self._sender = sender
        self._configuration = configuration

    def publish(
        self,
        /,
        event: object,
        *,
        type: str | None = None,
        id: str | uuid.UUID | None = None,
        domain: str | None = None,
        root: str | uuid.UUID | None = None,
        edition: str | None = None,
        sequence: int | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        tenant_id: str | None = None,
        priority: Priority | str = Priority.DEFAULT,
        config_pins: Pins | None = None,
        occurred_at: datetime | None = None,
        allow_no_subscriber: bool = False,
        check: bool = True,
        **options: Any,
    ) -> Event:
        """Send *event* to every handler of its type and return it, once the broker confirmed all.

        An event published by a handler continues its event's flow: the same correlation id, and
        that event as its cause. *options* go to Celery's ``send_task`` (countdown, expires, …).
        Publishing again with the same *id* is safe. *config_pins* says which versions of which
        configurations its handlers see, or names configurations whose current versions they see;
        what its flow is pinned to stays. Ordered handlers get every event of their
        domain, which needs *root* and *sequence*. That, and bare JSON, is checked against the
        handlers known here, unless *check* is false. Raises UnserializableEvent, EventDoesNotFit
        NoSubscriber, ConfigurationVersionMissing or StoreUnavailable (the last two where something
        is to be pinned) before anything is sent, BrokerUnavailable if the broker confirmed nothing,
        PublishIncomplete if it did not confirm everybody's; both have the `event_id`. Raises
        PayloadStoreUnavailable, with nothing sent, while a body for that store cannot be kept.
        """
        if options:
            check_send_options(options, PUBLISH)
        said = Publication(
            event, type=type, id=id, domain=domain, root=root, edition=edition, sequence=sequence,
            correlation_id=correlation_id, causation_id=causation_id, tenant_id=tenant_id,
            priority=priority, config_pins=config_pins, occurred_at=occurred_at,
        )  # fmt: skip
        published = in_domain(said.as_event(_cause(), SystemClock().now()), self._context.handlers)
        published = self._pinned(published, said.unpinned)
        found = self._subscriptions(published, allow_no_subscriber)
        if check:
            self._check_fit(published, is_bare=said.is_bare)
        with wiring.publishing_span(published) as traceparent:
            if traceparent != published.traceparent:
                published = replace(published, traceparent=traceparent)
            self._send_to_all(published, found, options)
        return published

    def publish_many(
        self,
        /,
        events: Iterable[object],
        *,
        type: str | None = None,
        domain: str | None = None,
        root: str | uuid.UUID | None = None,
        edition: str | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        tenant_id: str | None = None,
        priority: Priority | str | None = None,
        config_pins: Pins | None = None,
        occurred_at: datetime | None = None,
        allow_no_subscriber: bool = False,
        check: bool = True,
        **options: Any,
    ) -> list[Event]:
        """Send many events in order, as `publish` sends each, with few round trips; return them.

        *events* are event objects, `Publication`s (an object with an id, a root, …), for which
        these arguments stand in where they say nothing, or `Event`s, which go as they are.
        All are checked before the first is sent: raises what `publish` raises, and says which
        event it was. Raises BrokerUnavailable if nothing was sent. NotAllPublished says which
        events were sent, which may have been and which were not; sending those again is safe.
        """
        if options:
            check_send_options(options, PUBLISH)
        given = {
            "type": type, "domain": domain, "root": root, "edition": edition,
            "correlation_id": correlation_id, "causation_id": causation_id,
            "tenant_id": tenant_id, "priority": priority, "config_pins": config_pins,
            "occurred_at": occurred_at,
        }  # fmt: skip
        common = {name: said for name, said in given.items() if said is not None}
        outgoing = list(self._outgoing(events, common, allow_no_subscriber, check))
        span, send = wiring.publishing_span, self._send_to
        if not self._sender.send_many(outgoing, options, span=span, send=send):
            self._send_one_by_one(outgoing, options)
        return [item.event for item in outgoing]

    def _outgoing(
        self,
        events: Iterable[object],
        common: Mapping[str, Any],
        allow_no_subscriber: bool,  # noqa: FBT001 - the caller's own name for it
        check: bool,  # noqa: FBT001 - the same
    ) -> Iterator[OutgoingEvent]:
        """Make and check every event; an error names the event by its number, from 0."""
        cause, now = _cause(), SystemClock().now()
        takers: dict[tuple[str, str | None], Sequence[Subscription]] = {}
        for number, given in enumerate(events):
            try:
                made, is_bare, unpinned = _event_of(given, common, cause, now)
                event = in_domain(made, self._context.handlers)
                if unpinned is not None:
                    event = self._pinned(event, unpinned)
                key = (event.type, event.domain)
                if key not in takers:
                    takers[key] = self._subscriptions(event, allow_no_subscriber)
                if check:
                    self._check_fit(event, is_bare=is_bare)
                text = json_of(event.data)
            except AngzarrError as error:
                msg = f"event {number} of the batch, and so none of it, was not sent: {error}"
                raise type(error)(msg) from error
            yield OutgoingEvent(event, [OutgoingMessage(taker) for taker in takers[key]], text)

    def _pinned(self, event: Event, unpinned: Sequence[str]) -> Event:
        """*event*, pinned to the current versions of what it is to be pinned to and is not.

        Asks nothing where there is nothing to pin.
        """
        always = self._context.settings.configuration.pin_at_publish
        if not unpinned and not always:  # nearly all
            return event
        wanted = (*unpinned, *always.get(event.type, ()))
        pins = {
            name: self._configuration().current(name).version
            for name in wanted
            if name not in event.config_pins
        }
        return replace(event, config_pins={**event.config_pins, **pins}) if pins else event

    def _subscriptions(
        self,
        event: Event,
        allow_none: bool,  # noqa: FBT001 - publish's own name for it
    ) -> Sequence[Subscription]:
        found = subscriptions(
            event.type, event.domain, self._context.handlers, self._context.routes
        )
        if not found and not allow_none:
            msg = (
                f"no handler takes {event.type!r}: register one with @app.handler, name one"
                " under routes in the settings, or publish with allow_no_subscriber=True"
            )
            raise NoSubscriber(msg)
        return found

    def _check_fit(self, event: Event, *, is_bare: bool) -> None:
        """Refuse what a handler known here could never take; others check when they run."""
        check_place(event, self._context.handlers)
        if is_bare:
            check_data(event, self._context.handlers)

    def _send_to_all(
        self, event: Event, found: Sequence[Subscription], options: Mapping[str, Any]
    ) -> None:
        missing: list[str] = []
        cause: BrokerUnavailable | PayloadStoreUnavailable | None = None
        for subscription in found:
            try:
                self._send_to(event, subscription, options)
            except (BrokerUnavailable, PayloadStoreUnavailable) as error:
                missing.append(subscription.handler)
                cause = error
        if cause is None:
            return
        if len(missing) == len(found):
            raise cause
        raise PublishIncomplete(event.id, missing, str(cause)) from cause

    def _send_to(
        self, event: Event, subscription: Subscription, options: Mapping[str, Any]
    ) -> None:
        handler = self._context.handlers.get(subscription.handler)
        headers = OwnHeaders(to_headers(event))
        if not event.domain and handler is not None and handler.domain:
            headers[DOMAIN] = handler.domain
        routed = {"queue": subscription.queue} if subscription.queue else {}
        self.send_task(
            self._sender.send,
            subscription.handler,
            args=[event.data],
            task_id=task_id_for(event.id, subscription.handler),
            headers=headers,
            **{**routed, **options},
        )

    def _send_one_by_one(
        self, outgoing: Sequence[OutgoingEvent], options: Mapping[str, Any]
    ) -> None:
        """Send where there are no batches, and stop at the first that fails."""
        message: OutgoingMessage | None = None
        try:
            for item in outgoing:
                with wiring.publishing_span(item.event) as traceparent:
                    item.event = replace(item.event, traceparent=traceparent)
                    for message in item.messages:
                        self._send_to(item.event, message.to, options)
                        message.confirmed = True
        except (PublishError, PayloadStoreUnavailable, *UNSENDABLE) as error:
            if message is not None:
                message.lost, message.error = isinstance(error, BrokerUnavailable), error
            told = account(outgoing, error, self._sender.broker_shown)
            if told is error:
                raise
            raise told from error

    def send_task(self, send: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
        """Send a task by Celery's *send*; raises BrokerUnavailable if it was not confirmed."""
        handler = self._context.handlers.get(name)
        if handler is not None and handler.queue and not any(map(options.get, _ADDRESS)):
            options["queue"] = handler.queue
        if len(args) <= _BEFORE_TASK_ID:
            options["task_id"] = options.get("task_id") or str(uuid.uuid4())
        if 0 < (options.get("countdown") or 0) < 1 and wiring.is_amqp(self._context.broker_url):
            options["countdown"] = 1  # whole seconds there; Celery raises for a part of one
        try:
            return send(name, *args, **options)
        except EncodeError as error:
            msg = f"the arguments of {name} cannot be written as JSON: {error}"
            raise UnserializableEvent(msg) from error
        except AWAY as error:
            event_id, again = _identity(options)
            cure = "Fix that" if is_refusal(error) else "Start it or set broker_url"
            cure = CURE if isinstance(error, PreconditionFailed) else cure
            msg = (
                f"the broker at {self._sender.broker_shown} did not confirm {name} of event"
                f" {event_id} ({error}); it may have been sent. {cure}, then send it again with"
                f" {again}: it will not run twice"
            )
            raise unconfirmed(msg, error, event_id) from error


def _identity(options: Mapping[str, Any]) -> tuple[str, str]:
    """The id of the event that a task's *options* send, and how to say it once more."""
    event_id = (options.get("headers") or {}).get(EVENT_ID)
    if event_id is not None:
        return event_id, f"id={event_id!r}"
    task_id = str(options.get("task_id"))
    return task_id, f"task_id={task_id!r}"


def _cause() -> Event | None:
    """The event that is being handled here and now."""
    running = RUNNING.get()
    return running.event if running is not None else None


def _event_of(
    given: object, common: Mapping[str, Any], cause: Event | None, now: datetime
) -> tuple[Event, bool, Sequence[str] | None]:
    """The event, whether its data is bare JSON that was never checked, and what is to be pinned.

    None: an event that goes as it is.
    """
    if isinstance(given, Event):
        refuse_sequence(given.sequence)
        return given, True, None
    said = given if isinstance(given, Publication) else Publication(given)
    said = said.with_common(common)
    return said.as_event(cause, now), said.is_bare, said.unpinned
