"""Lanes of one process, for tests and embedded apps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from angzarr.adapters.memory.checkpoints import MemoryCheckpoints
from angzarr.aggregates.book import Address
from angzarr.clock import Clock, SystemClock
from angzarr.ordering.lane import (
    Elsewhere,
    Full,
    Gap,
    Known,
    Lane,
    Moved,
    ParkAnswer,
    ParkedInLane,
    Place,
    Ready,
    Standing,
    Step,
    StepEnd,
    Summary,
    Taken,
    Waiting,
    Why,
    replaces,
)
from angzarr.ordering.lanes import Lanes, Looked


@dataclass(slots=True)
class _LaneRow:
    """A lane: what waits in it by sequence, and until when an early one is lent."""

    lane: Lane
    next: int
    moved_at: datetime | None = None
    waiting: dict[int, Waiting] = field(default_factory=dict)
    lent: dict[int, datetime] = field(default_factory=dict)
    #: The place that was sent again, how often, and until when it is not.
    sent: tuple[int, int, datetime] | None = None

    def early(self) -> list[Waiting]:
        found = (self.waiting[place] for place in sorted(self.waiting))
        return [one for one in found if one.why is Why.EARLY]

    def ahead(self) -> list[Waiting]:
        return [one for one in self.early() if one.sequence > self.next]

    def put(self, waiting: Waiting) -> None:
        self.forget(waiting.sequence)
        self.waiting[waiting.sequence] = waiting

    def forget(self, sequence: int) -> None:
        self.waiting.pop(sequence, None)
        self.lent.pop(sequence, None)

    def is_blocked(self) -> bool:
        there = self.waiting.get(self.next)
        return there is not None and there.why is Why.DEAD_LETTER

    def parked_at(self, sequence: int) -> Waiting | None:
        there = self.waiting.get(sequence)
        return there if there is not None and there.why is Why.EARLY else None


def _gap_of(row: _LaneRow) -> Gap | None:
    """The gap of a lane in which events wait that are ahead."""
    ahead = row.ahead()
    if not ahead:
        return None
    gap = Gap(row.lane, row.next, ahead[0], len(ahead), row.waiting.get(row.next))
    if row.sent is None or row.sent[0] != row.next:
        return gap
    return gap._replace(sent=row.sent[1], sent_until=row.sent[2])


def _is_missing(there: Waiting | None, before: datetime) -> bool:
    """True if nothing is known of an event, or its retry should have come by then."""
    return there is None or (there.why is Why.RETRYING and (there.due_at or before) < before)


def _summary_of(handler: str, rows: Sequence[_LaneRow]) -> Summary:
    waiting = [one for row in rows for one in row.waiting.values()]
    parked = sum(one.why is Why.EARLY for one in waiting)
    since = min((one.since for one in waiting), default=None)
    return Summary(handler, len(rows), parked, sum(row.is_blocked() for row in rows), since)


def _first(row: _LaneRow) -> Waiting | None:
    places = [sequence for sequence in row.waiting if sequence >= row.next]
    return replace(row.waiting[min(places)], text=None) if places else None


#: Before any time.
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)

_Key: TypeAlias = tuple[str, Address]
#: Names an event in its lane.
_EventKey: TypeAlias = tuple[str, Address, int, str]
#: Ends that are kept at most, where no keeper forgets them.
_MOST_ENDS: Final = 100_000


class MemoryLanes(Lanes):
    """Lanes in a dictionary, under one lock; a run holds one of its lane besides.

    Work cannot be rolled back here: it is run only if the lane is at its place.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        #: Where moves are counted.
        self.checkpoints = MemoryCheckpoints()
        self._rows: dict[_Key, _LaneRow] = {}
        self._ends: dict[_EventKey, StepEnd] = {}
        self._lock = threading.Lock()
        self._duty: dict[frozenset[str], tuple[str, datetime]] = {}
        self._running: WeakValueDictionary[_Key, threading.Lock] = WeakValueDictionary()

    def look(self, lane: Lane, /) -> Place:
        """The place of *lane*."""
        with self._lock:
            return self._look(lane)

    def move(self, step: Step, /) -> Moved | Elsewhere:
        """Move a lane past *step* and count it."""
        with self._lock:
            moved = self._move(step)
            if moved != Elsewhere(step.sequence + 1):
                return moved
            return Moved(self._row(step.lane).parked_at(step.sequence + 1))

    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* with None, and move past *step*; other runs of the lane wait meanwhile."""
        with self._lock:
            alone = self._running.setdefault(_key(step.lane), threading.Lock())
        with alone:
            place = self.look(step.lane)
            if place.next_sequence != step.sequence:
                return Elsewhere(place.next_sequence)
            work(None)
            with self._lock:
                return self._move(step)

    def ended(self, step: Step, since: datetime, /) -> StepEnd | None:
        """How an earlier delivery of the event of *step* ended."""
        with self._lock:
            end = self._ends.get(_event_key(step))
        return end if end is not None and end.at >= since else None

    def forget_ends(self, before: datetime, limit: int, /) -> int:
        """Forget how old steps ended."""
        with self._lock:
            old = [(end.at, key) for key, end in self._ends.items() if end.at < before]
            for _, key in (gone := sorted(old)[:limit]):
                del self._ends[key]
        return len(gone)

    def enter(self, lane: Lane, /) -> Looked:
        """Look at *lane*; every run is let in."""
        return Looked(self.look(lane), self)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Give None: nothing is undone here."""
        yield

    def park(self, early: Waiting, most: int, /) -> ParkAnswer:
        """Keep an EARLY event."""
        with self._lock:
            place = self._look(early.lane)
            if place.next_sequence >= early.sequence:
                return Ready(place.next_sequence)
            row = self._rows.get(_key(early.lane)) or _LaneRow(early.lane, early.lane.first)
            there = row.parked_at(early.sequence)
            if there is not None and there.event_id != early.event_id:
                return Taken(there.event_id)
            if there is not None:
                early = replace(early, since=min(there.since, early.since))
            elif (parked := len(row.early())) >= most:
                return Full(parked)
            self._row(early.lane).put(early)
            return ParkedInLane()

    def note(self, waiting: Waiting, /, *, claimed: bool = True) -> None:
        """Keep that an event is RETRYING or a DEAD_LETTER."""
        with self._lock:
            if self._look(waiting.lane).next_sequence <= waiting.sequence:
                row = self._row(waiting.lane)
                if replaces(waiting, row.waiting.get(waiting.sequence), claimed=claimed):
                    row.put(waiting)

    def released(self, early: Waiting, /) -> None:
        """Forget an EARLY event."""
        with self._lock:
            row = self._rows.get(_key(early.lane))
            there = row.parked_at(early.sequence) if row is not None else None
            if row and there and there.text == early.text:
                row.forget(early.sequence)

    def due(
        self, handlers: Sequence[str], now: datetime, lease: timedelta, limit: int, /
    ) -> Sequence[Waiting]:
        """Lend EARLY events whose turn has come."""
        with self._lock:
            free = [
                (row, one)
                for row in self._of(handlers)
                for one in row.early()
                if one.sequence <= row.next and row.lent.get(one.sequence, now) <= now
            ]
            free.sort(key=lambda found: (found[1].since, found[1].sequence))
            for row, one in free[:limit]:
                row.lent[one.sequence] = now + lease
            return [one for _, one in free[:limit]]

    def recall(self, handlers: Sequence[str], limit: int, /) -> int:  # noqa: ARG002 - the port's
        """Do nothing: `due` goes by where lanes are, and overlooks none."""
        return 0

    def gaps(self, handlers: Sequence[str], before: datetime, limit: int, /) -> Sequence[Gap]:
        """Lanes whose next event is missing."""
        with self._lock:
            found = [
                (gap.sent_until or _NEVER, oldest, gap)
                for row in self._of(handlers)
                if (gap := _gap_of(row))
                and (oldest := min(one.since for one in row.ahead())) < before
                # What a lane that moved misses is on its way.
                and (row.moved_at is None or row.moved_at < before)
                and _is_missing(gap.overdue, before)
            ]
        return [gap for *_, gap in sorted(found, key=lambda one: one[:2])[:limit]]

    def sending(self, gap: Gap, sent: int, until: datetime, /) -> bool:
        """Note how often and until when."""
        with self._lock:
            row = self._rows.get(_key(gap.lane))
            there = None if row is None else _gap_of(row)
            seen = (gap.missing, gap.sent, gap.sent_until)
            if there is None or (there.missing, there.sent, there.sent_until) != seen:
                return False
            self._row(gap.lane).sent = (gap.missing, sent, until)
            return True

    def on_duty(self, keeper: str, span: timedelta, /, *, of: Sequence[str] = ()) -> bool:
        """True if *keeper* is on duty."""
        with self._lock:
            now, key = self._clock.now(), frozenset(of)
            there, until = self._duty.get(key, (keeper, now))
            if there != keeper and until > now:
                return False
            self._duty[key] = keeper, now + span
            return True

    def places(self, handler: str, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """The next sequences of the lanes at *addresses*."""
        with self._lock:
            rows = ((address, self._rows.get((handler, address))) for address in addresses)
            return {address: row.next for address, row in rows if row is not None and row.moved_at}

    def summaries(self, handlers: Sequence[str], /) -> Sequence[Summary]:
        """A summary for each of *handlers*."""
        with self._lock:
            return [_summary_of(handler, list(self._of([handler]))) for handler in handlers]

    def waiting(
        self, handler: str, /, *, address: Address | None = None, limit: int = 100
    ) -> Sequence[Waiting]:
        """The events that wait in the lanes of *handler*."""
        with self._lock:
            rows = [row for row in self._of([handler]) if address in (None, row.lane.address)]
            found = [one for row in rows for one in row.waiting.values()]
        return sorted(found, key=lambda one: (one.lane.address, one.sequence))[:limit]

    def standing(
        self, handler: str, /, *, limit: int, after: Address | None = None, blocked: bool = False
    ) -> Sequence[Standing]:
        """Lanes of *handler* in which something waits."""
        with self._lock:
            found = [
                Standing(row.lane, row.next, len(row.waiting), _first(row))
                for row in self._of([handler])
                if row.waiting
                and (after is None or row.lane.address > after)
                and (not blocked or row.is_blocked())
            ]
        return sorted(found, key=lambda one: one.lane.address)[:limit]

    def known(self) -> Sequence[Known]:
        """The handlers that have lanes."""
        found: dict[str, Known] = {}
        with self._lock:
            for (handler, address), row in self._rows.items():
                there = found.get(handler, Known(handler, frozenset(), row.lane.first))
                found[handler] = there._replace(domains=there.domains | {address.domain})
        return [found[name] for name in sorted(found)]

    def behind(self, letter_ids: Sequence[str], /) -> Mapping[str, int]:
        """The number of events that are parked behind each dead letter."""
        with self._lock:
            blocked = ((row, row.waiting.get(row.next)) for row in self._rows.values())
            found = {(there.letter_id or ""): len(row.ahead()) for row, there in blocked if there}
        return {letter: found[letter] for letter in letter_ids if found.get(letter)}

    def skip_to(self, lane: Lane, sequence: int, /) -> Place:
        """Move *lane* on to *sequence*."""
        with self._lock:
            if sequence > self._look(lane).next_sequence:
                row = self._row(lane)
                row.next, row.moved_at = sequence, self._clock.now()
                for one in list(row.waiting.values()):
                    if one.sequence < sequence and one.why is not Why.EARLY:
                        row.forget(one.sequence)
            return self._look(lane)

    def reset(self, handler: str, work: Callable[[Any], object] | None = None, /) -> int:
        """Let all lanes of *handler* begin anew."""
        with self._lock:
            if work is not None:
                work(None)
            rows = list(self._of([handler]))
            for row in rows:
                row.next, row.moved_at, row.sent = row.lane.first, None, None
                row.lent.clear()
                if not row.waiting:
                    del self._rows[_key(row.lane)]
            self.checkpoints.reset(handler)
            return len(rows)

    def close(self) -> None:
        """Do nothing: what is here is kept."""

    def _look(self, lane: Lane) -> Place:
        row = self._rows.get(_key(lane))
        return Place(lane.first) if row is None else Place(row.next, len(row.waiting))

    def _row(self, lane: Lane) -> _LaneRow:
        row = self._rows.setdefault(_key(lane), _LaneRow(lane, lane.first))
        row.lane = lane
        return row

    def _of(self, handlers: Sequence[str]) -> Iterator[_LaneRow]:
        return (row for row in self._rows.values() if row.lane.handler in handlers)

    def _move(self, step: Step) -> Moved | Elsewhere:
        place = self._look(step.lane)
        if place.next_sequence != step.sequence:
            return Elsewhere(place.next_sequence)
        row = self._row(step.lane)
        row.next, row.moved_at = step.sequence + 1, step.at
        row.forget(step.sequence)
        self._keep_end(step)
        self.checkpoints.add(step)
        return Moved(row.parked_at(row.next))

    def _keep_end(self, step: Step) -> None:
        if step.token:
            self._ends[_event_key(step)] = StepEnd(step.token, step.at, step.skipped)
            if len(self._ends) > _MOST_ENDS:
                del self._ends[next(iter(self._ends))]


def _key(lane: Lane) -> _Key:
    return lane.handler, lane.address


def _event_key(step: Step) -> _EventKey:
    return *_key(step.lane), step.sequence, step.event_id
