"""Sends what follows from decisions and gaps, as events and tasks of the app.

`SingleConnectionEvents` and `GapResender` send from threads beside which others fork. Celery's own
way to send takes locks that a child would inherit in the state of that moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from celery import Celery

from angzarr.adapters.celery.publish.routing import Routes
from angzarr.adapters.celery.publish.sealed_sends import sealing_by
from angzarr.aggregates.book import EventStore, Head
from angzarr.aggregates.command import Command, origin_headers, task_of
from angzarr.clock import Clock
from angzarr.delivery.handlers import subscriptions
from angzarr.delivery.schedule import read_row
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message, task_id_for
from angzarr.events.headers import HOP, OwnHeaders, to_headers
from angzarr.events.publication import Publisher, celery_message
from angzarr.ordering.lane import Gap
from angzarr.sagas.escalation import Escalation, escalation_of
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.rejection import Rejection, notification_task, to_event

_log = logging.getLogger("angzarr.ordering")


class CeleryOutbox(Outbox):
    """Sends through *app*; *publish* is that of many events, *escalate* calls a person."""

    def __init__(
        self,
        app: Celery,
        publish: Callable[..., object],
        escalate: Callable[[Escalation], object],
    ) -> None:
        self._app = app
        self._publish = publish
        self._escalate = escalate

    def publish(self, events: Sequence[Event], sealed: SealedOrigin | None = None, /) -> None:
        """Send *events* to their handlers."""
        if not events:
            return
        with sealing_by(self._app, sealed):
            self._publish(events, allow_no_subscriber=True, check=False)

    def send(self, commands: Sequence[Command], /) -> None:
        """Send each command to its aggregate."""
        for command in commands:
            task = task_of(command.address.domain, command.event.type)
            self._send(task, command.event, origin_headers(command.origin))

    def tell(self, rejection: Rejection, asked: int = 0, /) -> None:
        """Notify the source of *rejection*: it has the command in it, encrypted if that was."""
        task = notification_task(rejection.origin.source.domain)
        with sealing_by(self._app, rejection.sealed):
            self._send(task, to_event(rejection, asked), {})

    def escalate(self, rejection: Rejection, reason: str, /) -> None:
        """Call a person."""
        self._escalate(escalation_of(rejection, reason))

    def _send(self, task: str, event: Event, more: Mapping[str, Any]) -> None:
        self._app.send_task(
            task,
            args=[event.data],
            task_id=task_id_for(event.id, task),
            headers=OwnHeaders({**to_headers(event), **more}),
        )


_ORIGIN: Final = "angzarr-relay"


class SingleConnectionEvents:
    """Publishes events for handlers by way of *publisher*, one message after the other."""

    def __init__(
        self, known: Routes, queue_for: Callable[[str], str], publisher: Publisher
    ) -> None:
        self._known = known
        self._queue_for = queue_for
        self._publisher = publisher

    def publish(self, events: Sequence[Event]) -> None:
        """Send *events* to their handlers, confirmed; raises BrokerUnavailable."""
        known = self._known
        for event in events:
            for taker in subscriptions(event.type, event.domain, known.handlers, known.routes):
                self._send(event, taker.handler, taker.queue or self._queue_for(taker.handler))

    def _send(self, event: Event, handler: str, queue: str) -> None:
        known = self._known.handlers.get(handler)
        own_domain = known.domain if known is not None else None
        addressed = event if event.domain else replace(event, domain=own_domain)
        task_id = task_id_for(event.id, handler)
        message = celery_message(handler, task_id, addressed, queue, origin=_ORIGIN)
        self._publisher.publish(message)


#: Events that are sent for one gap at a time; what is missing after these is found later.
MOST_RESENT: Final = 500
_GAP_ORIGIN: Final = "angzarr-lanes"


class GapResender:
    """Publishes by way of *publisher* into the queue that *queue_for* names for a handler.

    Without a *store* it sends only copies that the lane itself has. What is sent is the message
    that is missing, with the same id: beside another one of it, which comes all the same, it can
    only be a duplicate, and takes no attempt from it.
    """

    def __init__(
        self,
        store: EventStore | None,
        publisher: Publisher,
        queue_for: Callable[[str], str],
        clock: Clock,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._queue_for = queue_for
        self._clock = clock

    def heal(self, gap: Gap, most: int, *, above_all: bool = False) -> int:
        """Send at most *most* of the events missing in *gap*; return how many that were.

        *above_all*: as the latest copies that there are of them. If a claim waits for a copy which
        was lost, nothing else would pass for a day; attempts are counted anew then where they
        come from a book. Raises StoreUnavailable, BrokerUnavailable.
        """
        # Minutes: mostly more than copies came to, and more again each time that it is sent.
        headers = {HOP: int(self._clock.now().timestamp() // 60)} if above_all else {}
        copy = self._overdue(gap)
        if copy is not None:
            self._publisher.publish(replace(copy, headers={**copy.headers, **headers}))
            return 1
        sent = 0
        for event in self._missing(gap, min(most, MOST_RESENT)):
            self._send(event, gap.lane.handler, headers)
            sent += 1
        return sent

    def _overdue(self, gap: Gap) -> Message | None:
        """The copy that the lane of *gap* waits for, if it has one that can be read."""
        if gap.overdue is None or gap.overdue.text is None:
            return None
        try:
            return read_row(gap.overdue.text)
        except DecodeError as error:
            _log.error("copy_unreadable: event %s: %s", gap.overdue.event_id, error)
            return None

    def _missing(self, gap: Gap, most: int) -> list[Event]:
        """The missing events that the event store has."""
        if self._store is None:
            return []
        address, until = gap.lane.address, gap.first_waiting.sequence
        limit = min(until - gap.missing, most)
        found: list[Event] = []
        for event in self._store.scan([address.domain], Head(address, gap.missing), limit):
            if (event.root, event.edition or "") != (address.root, address.edition):
                break
            if event.sequence is None or event.sequence >= until:
                break
            found.append(event)
        return found

    def _send(self, event: Event, handler: str, headers: Mapping[str, int]) -> None:
        task_id = task_id_for(event.id, handler)
        queue = self._queue_for(handler)
        message = celery_message(
            handler, task_id, event, queue, origin=_GAP_ORIGIN, headers=headers
        )
        self._publisher.publish(message)
