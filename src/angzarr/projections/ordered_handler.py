"""Ordered: a projection, or another handler that takes events in order, as people know it."""

from __future__ import annotations

from typing import Final, NamedTuple

from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Lane
from angzarr.ordering.order import Order
from angzarr.projections.projection import handler_name

#: With what the task name of a projection begins.
_PROJECTION: Final = handler_name("")


class Ordered(NamedTuple):
    """A projection, or another handler that takes events in order."""

    task: str
    order: Order

    @property
    def name(self) -> str:
        """The name of the projection, or the task name of the handler."""
        named = self.order.moves and self.task.startswith(_PROJECTION)
        return self.task.removeprefix(_PROJECTION) if named else self.task

    @property
    def kind(self) -> str:
        """`projection`, or `handler`."""
        return "projection" if self.order.moves else "handler"

    def lane(self, address: Address) -> Lane:
        """Return the lane of the aggregate at *address*."""
        return Lane(self.task, address, self.order.first)
