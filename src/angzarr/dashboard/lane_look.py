"""Lane look: which lanes of an ordered handler stand, what waits in one, and what it waits behind.

A lane is asked about when it is looked at, and never more of them than a page shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from angzarr.aggregates.book import Address, Head, Pending, check_address
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.ordered_desk import BOOKS, LANES
from angzarr.dashboard.paging import no_cursor, text_after
from angzarr.dashboard.problem import Problem, asking
from angzarr.errors import AngzarrError, InvalidDomainName, InvalidRoot
from angzarr.ordering.lane import Standing, Waiting
from angzarr.ordering.lane_view import LaneView, lane_at
from angzarr.projections.checkpoint import Checkpoint
from angzarr.projections.ordered_handler import Ordered


class LanePage(NamedTuple):
    """Lanes in which something waits, and the cursor of the next page, if there is one."""

    lanes: Sequence[Standing]
    next: str


class LaneStory(NamedTuple):
    """One lane, what waits in it, and what its book has more."""

    view: LaneView
    #: More waits than is told.
    more: bool
    pending: Sequence[Pending]


class Letters(NamedTuple):
    """The entries of letters that lanes wait behind, by letter; None: the ledger is away."""

    entries: Mapping[str, str] | None

    def entry_of(self, waiting: Waiting) -> str | None:
        """Return the id of the entry that *waiting* is; None: it is not filed, or not known."""
        return (self.entries or {}).get(waiting.letter_id or "")


def lane_page(desk: Desk, one: Ordered, *, after: str, limit: int, blocked: bool) -> LanePage:
    """Return lanes of *one* behind the cursor *after*; raises Problem, ConfigurationError."""
    place = _address_in(after) if after else None
    with asking(LANES):
        lanes = desk.ordered.stores().lanes
        found = lanes.standing(one.task, after=place, limit=limit + 1, blocked=blocked)
    shown = found[:limit]
    more = json.dumps(shown[-1].lane.address) if len(found) > limit else ""
    return LanePage(shown, more)


def lane_story(desk: Desk, one: Ordered, address: Address, limit: int) -> LaneStory:
    """Return the lane of *one* at *address*; raises Problem, ConfigurationError."""
    try:
        check_address(address)
    except (InvalidDomainName, InvalidRoot) as error:
        raise Problem(422, "invalid", str(error)) from error
    with asking(LANES):
        view = lane_at(desk.ordered.stores().lanes, one.lane(address), limit + 1)
    more = len(view.waiting) > limit
    shown = LaneView(
        address=address, next_sequence=view.next_sequence, waiting=view.waiting[:limit]
    )
    return LaneStory(shown, more, _pending(desk, shown))


def by_type(desk: Desk, one: Ordered) -> Mapping[str, Checkpoint]:
    """Return what *one* processed of each type of event; raises Problem, ConfigurationError."""
    with asking(LANES):
        return desk.ordered.stores().checkpoints.by_type(one.task)


def letters_of(desk: Desk, waiting: Iterable[Waiting | None]) -> Letters:
    """Return the entries of those *waiting* that are dead letters, in one question."""
    ids = {one.letter_id for one in waiting if one is not None and one.letter_id}
    if not ids:
        return Letters({})
    try:
        found = desk.ledger.find_by_letters(ids)
    except AngzarrError:
        return Letters(None)
    return Letters({letter: entry.id for letter, entry in found.items()})


def _pending(desk: Desk, view: LaneView) -> Sequence[Pending]:
    with asking(BOOKS):
        books = desk.ordered.books()
        return () if books is None else books.pending([Head(view.address, view.next_sequence)])


def _address_in(after: str) -> Address:
    try:
        place = json.loads(text_after(after))
    except ValueError:
        raise no_cursor() from None
    match place:
        case [str(domain), str(root), str(edition)]:
            try:
                return check_address(Address(domain, root, edition))
            except (InvalidDomainName, InvalidRoot):
                raise no_cursor() from None
    raise no_cursor()
