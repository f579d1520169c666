"""LaneHealing: sends events that a lane misses once more, as event books have them (spec P3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from angzarr.aggregates.event_store import EventStore, Head
from angzarr.clock import Clock
from angzarr.delivery.schedule import read
from angzarr.errors import DecodeError
from angzarr.events.celery_message import celery_message
from angzarr.events.event import Event, task_id_for
from angzarr.events.headers import HOP
from angzarr.events.message import Message
from angzarr.events.publisher import Publisher
from angzarr.ordering.lane import Gap

_log = logging.getLogger("angzarr.ordering")

#: Events that are sent for one gap at a time; what is missing after these is found later.
MOST: Final = 500
_ORIGIN: Final = "angzarr-lanes"


class LaneHealing:
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
        was lost, nothing else would pass for a day (10); attempts are counted anew then where they
        come from a book. Raises StoreUnavailable, BrokerUnavailable.
        """
        # Minutes: mostly more than copies came to, and more again each time that it is sent.
        headers = {HOP: int(self._clock.now().timestamp() // 60)} if above_all else {}
        copy = self._overdue(gap)
        if copy is not None:
            self._publisher.publish(replace(copy, headers={**copy.headers, **headers}))
            return 1
        sent = 0
        for event in self._missing(gap, min(most, MOST)):
            self._send(event, gap.lane.handler, headers)
            sent += 1
        return sent

    def _overdue(self, gap: Gap) -> Message | None:
        """Return the copy that the lane of *gap* waits for, if it knows and anybody can read it."""
        if gap.overdue is None or gap.overdue.text is None:
            return None
        try:
            return read(gap.overdue.text)
        except DecodeError as error:
            _log.error("copy_unreadable: event %s: %s", gap.overdue.event_id, error)
            return None

    def _missing(self, gap: Gap, most: int) -> list[Event]:
        """Return what the books have of what is missing."""
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
        message = celery_message(handler, task_id, event, queue, origin=_ORIGIN, headers=headers)
        self._publisher.publish(message)
