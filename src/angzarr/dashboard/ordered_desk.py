"""OrderedDesk: where ordered handlers are looked at, and all that is known of which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.aggregates.book import EventStore
from angzarr.errors import AngzarrError
from angzarr.fleet import Member
from angzarr.ordering.lane import Known
from angzarr.ordering.order import Order
from angzarr.projections.checkpoint import OrderingStores
from angzarr.projections.ordered_handler import Ordered
from angzarr.projections.projection import handler_name

_PROJECTION: Final = handler_name("")
#: What people call them where they do not answer.
LANES: Final = "the database of ordered handlers"
BOOKS: Final = "the database of event books"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedDesk:
    """What is asked about ordered handlers. All raise AngzarrError."""

    #: What the app that this process was given registers: none of them, where it loads no handlers.
    registered: Callable[[], Sequence[Ordered]]
    stores: Callable[[], OrderingStores]
    #: None: there are no event books.
    books: Callable[[], EventStore | None]
    #: The workers that run.
    members: Callable[[], Sequence[Member]]

    def all(self) -> list[tuple[Ordered, bool]]:
        """Return what the app registers, and what else has lanes, by name.

        With each whether the app registers it: of another one only that is known which its lanes
        tell. Raises AngzarrError.
        """
        mine = self.registered()
        names = {one.task for one in mine}
        others = (one for one in self.stores().lanes.known() if one.handler not in names)
        found = [(one, True) for one in mine] + [(_by_lanes(one), False) for one in others]
        return sorted(found, key=lambda pair: pair[0].name)

    def workers(self, tasks: Iterable[str]) -> dict[str, int] | None:
        """Return how many workers run each of *tasks*; None: nobody could tell."""
        try:
            members = self.members()
        except AngzarrError:
            return None
        return {task: sum(task in one.handlers for one in members) for task in tasks}


def _by_lanes(known: Known) -> Ordered:
    """Return a handler that nobody registered here: a projection, if it is called like one."""
    order = Order(
        domains=known.domains,
        types=frozenset(),
        first=known.first,
        moves=known.handler.startswith(_PROJECTION),
    )
    return Ordered(known.handler, order)
