"""Ordered: what an app does for handlers that take the events of each aggregate in order."""

from __future__ import annotations

from collections.abc import Callable

from angzarr.adapters.celery.publish.outbox import GapResender
from angzarr.adapters.celery.publish.publisher import SingleConnectionPublisher
from angzarr.aggregates.book import EventStore
from angzarr.app.commands import Commanding
from angzarr.clock import SystemClock
from angzarr.delivery.gap_monitor import LaneKeeper
from angzarr.errors import ConfigurationError
from angzarr.events.event import Message
from angzarr.ordering.lane import Order
from angzarr.projections.checkpoint import LagWatch, OrderingStores
from angzarr.runtime.processes import OncePerProcess, PeriodicThread
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import stores as wiring

#: Makes a dead letter of a kept message that nobody can read.
SetAside = Callable[[bytes, Exception], None]
#: Makes a dead letter of one that can never be sent; returns its id.
Bury = Callable[[Message, Exception], str]


class Ordered(Commanding):
    """Knows where the order is kept."""

    _ordering: OncePerProcess[OrderingStores]

    @property
    def ordering(self) -> OrderingStores:
        """Where this process keeps lanes and checkpoints; raises ConfigurationError."""
        return self._ordering.get()

    def ordered_handlers(self) -> dict[str, Order]:
        """Return the order of each handler that has one, by name, in order of registration."""
        return {handler.name: handler.order for handler in self.handlers if handler.order}

    def check_ordering(self) -> None:
        """Refuse ordered handlers without a database, or of events without a place.

        Raises ConfigurationError, MissingExtra.
        """
        orders = self.ordered_handlers()
        if orders:  # what it needs is imported here, and not by each child at its first event
            self._ordering.get()
        fallback = self.settings.saga_compensation.fallback_domain
        for name, order in orders.items():
            if fallback in order.domains:
                msg = (
                    f"{name} takes the events of {fallback!r} in order, and failed compensations"
                    " are events of that domain without an order: give"
                    " saga_compensation.fallback_domain a domain of its own"
                )
                raise ConfigurationError(msg)

    def open_keeper_thread(self, set_aside: SetAside, bury: Bury) -> PeriodicThread | None:
        """Return what looks after lanes beside the road; None without ordered handlers."""
        if not self.ordered_handlers():
            return None
        return PeriodicThread("angzarr-lanes", lambda _stopping: self._lane_keeper(set_aside, bury))

    def _lane_keeper(self, set_aside: SetAside, bury: Bury) -> LaneKeeper:
        publisher, events = SingleConnectionPublisher(self), self._event_store()

        def close() -> None:
            publisher.close()
            if events is not None:
                events.close()

        lanes, orders = self.ordering.lanes, self.ordered_handlers()
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
            heal=GapResender(events, publisher, self.queue_for, SystemClock()).heal,
            observe=watch.counted,
            facts=self.facts,
            clock=SystemClock(),
            gap_after=self.settings.ordering.gap_after,
            name=self.owner,
            close=close,
        )

    def _event_store(self) -> EventStore | None:
        """Return what reads the event books; None where there are none."""
        try:
            return books_wiring.open_event_store(self.settings, self.broker_url)
        except ConfigurationError:
            return None
