"""LaneHealing: sends events that a lane misses once more, as event books have them (spec P3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from angzarr.aggregates.event_store import EventStore, Head
from angzarr.clock import Clock
from angzarr.events.celery_message import celery_message
from angzarr.events.event import Event, task_id_for
from angzarr.events.headers import HOP
from angzarr.events.publisher import Publisher
from angzarr.ordering.lane import Gap

#: Events that are sent for one gap at a time; what is missing after these is found later.
MOST: Final = 500
_ORIGIN: Final = "angzarr-lanes"


class LaneHealing:
    """Publishes by way of *publisher* into the queue that *queue_for* names for a handler.

    Without a *store* it sends nothing. An event that is on its way all the same runs once: its id
    is that of its first message, and what is sent here counts as the latest copy of it. Else a
    claim that waits for a copy which was lost would let nothing pass for a day (10).
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

    def heal(self, gap: Gap) -> int:
        """Send what the books have of the events missing in *gap*; return how many that were.

        Raises StoreUnavailable, BrokerUnavailable.
        """
        if self._store is None:
            return 0
        address, until = gap.lane.address, gap.first_waiting.sequence
        limit = min(until - gap.missing, MOST)
        found = self._store.scan([address.domain], Head(address, gap.missing), limit)
        sent = 0
        for event in found:
            if (event.root, event.edition or "") != (address.root, address.edition):
                break
            if event.sequence is None or event.sequence >= until:
                break
            self._send(event, gap.lane.handler)
            sent += 1
        return sent

    def _send(self, event: Event, handler: str) -> None:
        task_id = task_id_for(event.id, handler)
        queue = self._queue_for(handler)
        # Minutes: more than copies can be, and more again each time that it is sent.
        headers = {HOP: int(self._clock.now().timestamp() // 60)}
        message = celery_message(handler, task_id, event, queue, origin=_ORIGIN, headers=headers)
        self._publisher.publish(message)
