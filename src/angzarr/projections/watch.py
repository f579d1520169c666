"""Watch: what the metrics say of ordered handlers, sampled now and then (spec P2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from angzarr.aggregates.event_store import EventStore
from angzarr.clock import Clock
from angzarr.ordering.lane import Gap, Summary
from angzarr.ordering.lanes import Lanes
from angzarr.ordering.order import Order
from angzarr.ordering.sample import Sample, samples_of
from angzarr.projections.lag import lag_of

#: Counting what is behind reads the place of every book: this many times as long it rests then.
_REST: Final = 20


@dataclass(slots=True, kw_only=True)
class Watch:
    """Used by one thread. What was counted last is shown until it is counted again."""

    #: The ordered handlers by name.
    orders: Mapping[str, Order]
    lanes: Lanes
    #: None: there are no event books.
    store: EventStore | None
    show: Callable[[Sequence[Sample]], object]
    clock: Clock
    _behind: dict[str, int] = field(default_factory=dict, init=False)
    _count_at: datetime | None = field(default=None, init=False)

    def counted(self, summaries: Sequence[Summary], gaps: Sequence[Gap]) -> None:
        """Show what was counted of lanes, with how many events they are behind.

        Raises StoreUnavailable; then the rest was shown with what is known from before.
        """
        self.show(samples_of(summaries, gaps, self._behind))
        began = self.clock.now()
        if self._count_at is not None and began < self._count_at:
            return
        for name, order in self.orders.items():
            lag = lag_of(name, order, store=self.store, lanes=self.lanes, now=began)
            self._behind[name] = lag.events_behind
        now = self.clock.now()
        self._count_at = now + (now - began) * _REST
        self.show(samples_of(summaries, gaps, self._behind))
