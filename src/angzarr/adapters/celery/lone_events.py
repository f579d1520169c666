"""LoneEvents: events published from a thread beside which others fork.

Celery's own way to send takes locks that a child would inherit as they are at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from angzarr.delivery.fanout import subscriptions
from angzarr.events.celery_message import celery_message
from angzarr.events.event import Event, task_id_for
from angzarr.events.publisher import Publisher

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
