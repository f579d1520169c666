"""CeleryOutbox: what follows from a decision, sent as any event or task of the app.

LoneEvents: events published from a thread beside which others fork.

Celery's own way to send takes locks that a child would inherit as they are at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from angzarr.aggregates.command import Command, origin_headers, task_of
from angzarr.delivery.fanout import subscriptions
from angzarr.events.celery_message import celery_message
from angzarr.events.event import Event, task_id_for
from angzarr.events.headers import OwnHeaders, to_headers
from angzarr.events.publisher import Publisher
from angzarr.sagas.escalation import escalation_of
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.rejection import Rejection, notification_task, to_event


class CeleryOutbox(Outbox):
    """Sends through *app*."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def publish(self, events: Sequence[Event], /) -> None:
        """Send *events* to whoever takes them."""
        if events:
            self._app.publish_many(events, allow_no_subscriber=True, check=False)

    def send(self, commands: Sequence[Command], /) -> None:
        """Send each command to its aggregate."""
        for command in commands:
            task = task_of(command.address.domain, command.event.type)
            self._send(task, command.event, origin_headers(command.origin))

    def tell(self, rejection: Rejection, asked: int = 0, /) -> None:
        """Tell the source of *rejection*."""
        task = notification_task(rejection.origin.source.domain)
        self._send(task, to_event(rejection, asked), {})

    def escalate(self, rejection: Rejection, reason: str, /) -> None:
        """Call a person."""
        self._app.escalate(escalation_of(rejection, reason))

    def _send(self, task: str, event: Event, more: Mapping[str, Any]) -> None:
        self._app.send_task(
            task,
            args=[event.data],
            task_id=task_id_for(event.id, task),
            headers=OwnHeaders({**to_headers(event), **more}),
        )


_ORIGIN: Final = "angzarr-relay"


class LoneEvents:
    """Publishes events of *app* by way of *publisher*, one message after the other."""

    def __init__(self, app: Any, publisher: Publisher) -> None:
        self._app = app
        self._publisher = publisher

    def publish(self, events: Sequence[Event]) -> None:
        """Send *events* to whoever takes them, confirmed; raises BrokerUnavailable."""
        app = self._app
        for event in events:
            for taker in subscriptions(event.type, event.domain, app.handlers, app.routes):
                self._send(event, taker.handler, taker.queue or app.queue_for(taker.handler))

    def _send(self, event: Event, handler: str, queue: str) -> None:
        known = self._app.handlers.get(handler)
        own_domain = known.domain if known is not None else None
        addressed = event if event.domain else replace(event, domain=own_domain)
        task_id = task_id_for(event.id, handler)
        message = celery_message(handler, task_id, addressed, queue, origin=_ORIGIN)
        self._publisher.publish(message)
