"""Publishing: an event becomes one message for each of its handlers (spec D1, decisions 13)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from celery import Celery
from kombu.exceptions import EncodeError
from kombu.utils.url import maybe_sanitize_url

from angzarr import wiring
from angzarr.adapters.celery.publisher import AWAY
from angzarr.delivery.context import RUNNING
from angzarr.delivery.fanout import Subscription, subscriptions
from angzarr.delivery.handlers import Handlers
from angzarr.errors import (
    BrokerUnavailable,
    DecodeError,
    EventDoesNotFit,
    NoSubscriber,
    PublishIncomplete,
    UnserializableEvent,
)
from angzarr.events.codec import event_type_of, to_json
from angzarr.events.event import Event, Priority, check_domain, task_id_for
from angzarr.events.headers import to_headers
from angzarr.settings import Settings

#: Options by which a sender says itself where a task goes.
_ADDRESS = ("queue", "exchange", "routing_key")


class Publishing(Celery):
    """What an app does to publish; half of `Angzarr`."""

    handlers: Handlers
    settings: Settings

    @cached_property
    def routes(self) -> Mapping[str, Sequence[Subscription]]:
        """Handlers by event type that this process need not import (decisions 13)."""
        return {
            event_type: [Subscription(route.handler, route.queue) for route in routes]
            for event_type, routes in self.settings.routes.items()
        }

    def publish(
        self,
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
        config_pins: Mapping[str, str] | None = None,
        occurred_at: datetime | None = None,
        allow_no_subscriber: bool = False,
        check: bool = True,
        **options: Any,
    ) -> Event:
        """Send *event* to every handler of its type and return it, once the broker confirmed all.

        An event published by a handler continues its event's flow: the same correlation id, and
        that event as its cause. *options* go to Celery's ``send_task`` (countdown, expires, …).
        Publishing again with the same *id* is safe. Bare JSON is checked against the handlers
        that are known here, unless *check* is false. Raises UnserializableEvent, EventDoesNotFit
        or NoSubscriber before anything is sent, BrokerUnavailable if nothing was sent,
        PublishIncomplete if not everybody's was.
        """
        if domain is not None:
            check_domain(domain)
        event_id = str(id or uuid.uuid4())
        running = RUNNING.get()
        flow, cause = _flow(running.event if running is not None else None)
        published = Event(
            id=event_id,
            type=type or event_type_of(event),
            data=to_json(event),
            domain=domain,
            root=None if root is None else str(root),
            edition=edition,
            sequence=sequence,
            correlation_id=correlation_id or flow or event_id,
            causation_id=causation_id or cause,
            tenant_id=tenant_id,
            priority=Priority(priority),
            config_pins=dict(config_pins or {}),
            occurred_at=occurred_at or datetime.now(UTC),
        )
        found = subscriptions(published.type, self.handlers, self.routes)
        if not found and not allow_no_subscriber:
            msg = (
                f"no handler takes {published.type!r}: register one with @app.handler, name one"
                " under routes in the settings, or publish with allow_no_subscriber=True"
            )
            raise NoSubscriber(msg)
        if check and not _typed(event):
            self._check_fit(published)
        with wiring.publishing_span(published) as traceparent:
            published = replace(published, traceparent=traceparent)
            self._send_to_all(published, found, options)
        return published

    def _check_fit(self, event: Event) -> None:
        """Refuse data that a handler known here could never read; others check when they run."""
        for handler in self.handlers.of_type(event.type):
            if handler.decode is not None:
                try:
                    handler.decode(event.data)
                except DecodeError as error:
                    msg = f"{error}; {handler.name} could not take it (check=False sends it anyway)"
                    raise EventDoesNotFit(msg) from error

    def _send_to_all(
        self, event: Event, found: Sequence[Subscription], options: Mapping[str, Any]
    ) -> None:
        missing: list[str] = []
        cause: BrokerUnavailable | None = None
        for subscription in found:
            try:
                self._send_to(event, subscription, options)
            except BrokerUnavailable as error:
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
        handler = self.handlers.get(subscription.handler)
        own_domain = handler.domain if handler is not None else None
        addressed = event if event.domain else replace(event, domain=own_domain)
        routed = {"queue": subscription.queue} if subscription.queue else {}
        self.send_task(
            subscription.handler,
            args=[event.data],
            task_id=task_id_for(event.id, subscription.handler),
            headers=to_headers(addressed),
            **{**routed, **options},
        )

    def send_task(self, name: str, *args: Any, **options: Any) -> Any:
        """Send a task as Celery does; a broker that is away is BrokerUnavailable (nothing sent)."""
        handler = self.handlers.get(name)
        if handler is not None and handler.queue and not any(map(options.get, _ADDRESS)):
            options["queue"] = handler.queue
        try:
            return super().send_task(name, *args, **options)
        except EncodeError as error:
            msg = f"the arguments of {name} cannot be written as JSON: {error}"
            raise UnserializableEvent(msg) from error
        except AWAY as error:
            where = maybe_sanitize_url(str(self.conf.broker_url or "the default address"))
            msg = (
                f"{name} was not sent: the broker at {where} did not confirm it ({error});"
                " start it or set broker_url, then publish again"
            )
            raise BrokerUnavailable(msg) from error


def _typed(event: object) -> bool:
    """Tell whether *event* was checked when it was made: anything but bare JSON."""
    return not isinstance(event, dict | list | str | int | float | bool | None)


def _flow(cause: Event | None) -> tuple[str | None, str | None]:
    """Return correlation and causation id of what a handler of *cause* publishes."""
    return (None, None) if cause is None else (cause.correlation_id or cause.id, cause.id)
