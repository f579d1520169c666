"""A worker's work beside the executor, for handlers that take events in order."""

from __future__ import annotations

from collections.abc import Callable

from angzarr.adapters.celery.publish.outbox import GapResender
from angzarr.adapters.celery.publish.publisher import SingleConnectionPublisher
from angzarr.aggregates.book import EventStore
from angzarr.clock import SystemClock
from angzarr.delivery.gap_monitor import LaneKeeper
from angzarr.errors import ConfigurationError
from angzarr.events.event import Message
from angzarr.projections.checkpoint import LagWatch
from angzarr.runtime.processes import PeriodicThread
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.event_store import orders_of
from angzarr.wiring.process import ProcessParts

#: Makes a dead letter of a kept message that nobody can read.
SetAside = Callable[[bytes, Exception], None]
#: Makes a dead letter of one that can never be sent; returns its id.
Bury = Callable[[Message, Exception], str]


class LaneWork:
    """The work that a worker's parent does for lanes, beside the executor."""

    def __init__(self, parts: ProcessParts) -> None:
        self._parts = parts

    def open_keeper_thread(
        self, owner: str, set_aside: SetAside, bury: Bury
    ) -> PeriodicThread | None:
        """A thread that looks after lanes, beside the executor; None without ordered handlers."""
        if not orders_of(self._parts.context.handlers):
            return None
        return PeriodicThread(
            "angzarr-lanes", lambda _stopping: self._lane_keeper(owner, set_aside, bury)
        )

    def _lane_keeper(self, owner: str, set_aside: SetAside, bury: Bury) -> LaneKeeper:
        parts = self._parts
        publisher, events = SingleConnectionPublisher(parts.celery), self._event_store()

        def close() -> None:
            publisher.close()
            if events is not None:
                events.close()

        lanes, orders = parts.ordering.lanes, orders_of(parts.context.handlers)
        watch = LagWatch(
            orders=orders,
            lanes=lanes,
            store=events,
            show=wiring.ordering_meters().show,
            clock=SystemClock(),
        )
        return LaneKeeper(
            lanes=lanes,
            handlers=list(orders),
            publish=publisher.publish,
            set_aside=set_aside,
            dead_letter=bury,
            heal=GapResender(events, publisher, parts.routing.queue_for, SystemClock()).heal,
            observe=watch.counted,
            facts=parts.facts,
            clock=SystemClock(),
            gap_after=parts.context.settings.ordering.gap_after,
            name=owner,
            close=close,
        )

    def _event_store(self) -> EventStore | None:
        """The reader of the event books; None where there are none."""
        context = self._parts.context
        try:
            return books_wiring.open_event_store(context.settings, context.broker_url)
        except ConfigurationError:
            return None
