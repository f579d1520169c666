"""Rows of lanes in memory, and what is told of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Gap, Known, Lane, Place, Standing, Summary, Waiting, Why


@dataclass(slots=True)
class LaneRow:
    """A lane: what waits in it by sequence, and until when somebody has an early one."""

    lane: Lane
    next: int
    moved_at: datetime | None = None
    waiting: dict[int, Waiting] = field(default_factory=dict)
    lent: dict[int, datetime] = field(default_factory=dict)
    #: The place that was sent again, how often, and until when it is not.
    sent: tuple[int, int, datetime] | None = None

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.next, len(self.waiting))

    def early(self) -> list[Waiting]:
        """Return what is parked, in order."""
        found = (self.waiting[place] for place in sorted(self.waiting))
        return [one for one in found if one.why is Why.EARLY]

    def ahead(self) -> list[Waiting]:
        """Return what is parked for places that the lane has not come to."""
        return [one for one in self.early() if one.sequence > self.next]

    def put(self, waiting: Waiting) -> None:
        """Keep *waiting* in place of what was there."""
        self.forget(waiting.sequence)
        self.waiting[waiting.sequence] = waiting

    def forget(self, sequence: int) -> None:
        """Forget what waits at *sequence*."""
        self.waiting.pop(sequence, None)
        self.lent.pop(sequence, None)

    def parked_at(self, sequence: int) -> Waiting | None:
        """Return what is parked for *sequence*, if anything."""
        there = self.waiting.get(sequence)
        return there if there is not None and there.why is Why.EARLY else None


def gap_of(row: LaneRow) -> Gap | None:
    """Return the gap of a lane in which some wait that are ahead, if nobody knows of its next."""
    ahead = row.ahead()
    if not ahead:
        return None
    gap = Gap(row.lane, row.next, ahead[0], len(ahead), row.waiting.get(row.next))
    if row.sent is None or row.sent[0] != row.next:
        return gap
    return gap._replace(sent=row.sent[1], sent_until=row.sent[2])


def stands(row: LaneRow, before: datetime) -> bool:
    """Tell whether nobody moved the lane since *before*: else what is missing is on its way."""
    return row.moved_at is None or row.moved_at < before


def nobody_knows(there: Waiting | None, before: datetime) -> bool:
    """Tell whether nobody knows of an event: one that is being retried should have come by then."""
    if there is None:
        return True
    return there.why is Why.RETRYING and there.due_at is not None and there.due_at < before


def summary_of(handler: str, rows: Sequence[LaneRow]) -> Summary:
    """Return the lanes of *handler*, which are *rows*, together."""
    waiting = [one for row in rows for one in row.waiting.values()]
    letters = [row for row in rows if is_letter(row.waiting.get(row.next))]
    parked = sum(one.why is Why.EARLY for one in waiting)
    oldest = min(waiting, key=attrgetter("since"), default=None)
    since = None if oldest is None else oldest.since
    return Summary(handler, len(rows), parked, len(letters), since)


def is_letter(there: Waiting | None) -> bool:
    """Tell whether what is there is a dead letter."""
    return there is not None and there.why is Why.DEAD_LETTER


def standing_of(rows: Iterable[LaneRow], after: Address | None, *, blocked: bool) -> list[Standing]:
    """Return *rows* in which something waits, by address; see `Lanes.standing`."""
    found = [
        Standing(row.lane, row.next, len(row.waiting), _first(row))
        for row in rows
        if row.waiting
        and (after is None or row.lane.address > after)
        and (not blocked or is_letter(row.waiting.get(row.next)))
    ]
    return sorted(found, key=lambda one: one.lane.address)


def _first(row: LaneRow) -> Waiting | None:
    places = [sequence for sequence in row.waiting if sequence >= row.next]
    return replace(row.waiting[min(places)], text=None) if places else None


def known_of(rows: Iterable[LaneRow]) -> list[Known]:
    """Return the handlers of *rows*, by name."""
    found: dict[str, Known] = {}
    for row in rows:
        handler, address, first = row.lane
        there = found.get(handler, Known(handler, frozenset(), first))
        found[handler] = there._replace(domains=there.domains | {address.domain})
    return [found[name] for name in sorted(found)]
