"""LaneKeeper: looks after lanes beside the road (spec P3).

It lets come what a process left that died between moving a lane and publishing what was parked
there, and it finds lanes that wait for an event of which nobody knows. One keeper in the fleet is
on duty at a time, of those that keep the same handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.clock import Clock
from angzarr.delivery.schedule_row import read
from angzarr.errors import (
    BrokerUnavailable,
    DecodeError,
    StoreUnavailable,
    Unavailable,
    text_of,
)
from angzarr.events.message import Message
from angzarr.facts import Fact, FactLog
from angzarr.ordering.lane import Gap, Lane, Lanes, Summary, Waiting
from angzarr.seldom import Seldom

_log = logging.getLogger("angzarr.ordering")

#: How often due events are looked for. A kill delays what it left by as much.
EVERY: Final = timedelta(seconds=2)
#: How often gaps are looked for, and lanes counted.
LOOK_EVERY: Final = timedelta(seconds=30)
#: How long a keeper is on duty after it said so last.
TENURE: Final = timedelta(seconds=15)
#: How long due events are lent to one keeper.
LEASE: Final = timedelta(seconds=30)
BATCH: Final = 100


@dataclass(slots=True, kw_only=True)
class LaneKeeper:
    """Fulfils `Turns`; called by one thread."""

    lanes: Lanes
    #: The ordered handlers of this worker, by name.
    handlers: Sequence[str]
    publish: Callable[[Message], None]
    #: Makes a dead letter of a parked message that nobody can read.
    set_aside: Callable[[bytes, Exception], None]
    #: Sends what event books have of the events that are missing; returns how many it sent.
    heal: Callable[[Gap], int]
    #: Is told how many events wait and where one is missing; it must not raise.
    observe: Callable[[Sequence[Summary], Sequence[Gap]], None]
    facts: FactLog
    clock: Clock
    #: After how long an event that is missing is sent again, or reported.
    gap_after: timedelta
    #: Names this keeper among those of the fleet.
    name: str
    close: Callable[[], None]
    seldom: Seldom = field(default_factory=Seldom)
    _look_at: datetime | None = field(default=None, init=False)
    _healed: dict[tuple[Lane, int], datetime] = field(default_factory=dict, init=False)

    def turn(self) -> timedelta:
        """Let due events come, and look for gaps when it is time; never raises."""
        try:
            if not self.lanes.on_duty(self.name, TENURE, of=self.handlers):
                return EVERY
            full = self._let_come() == BATCH
            self._look()
        except Exception as error:  # noqa: BLE001 - what waits stays, and is found at a later turn
            self._report(error)
            return EVERY
        return timedelta(0) if full else EVERY

    def leave(self) -> None:
        """Close what it opened."""
        self.close()

    def _let_come(self) -> int:
        """Publish due events, then forget them; return how many were lent."""
        due = self.lanes.due(self.handlers, self.clock.now(), LEASE, BATCH)
        for waiting in due:
            with self._alone():
                self._send(waiting)
                self.lanes.released(waiting)
        return len(due)

    def _send(self, waiting: Waiting) -> None:
        text = waiting.text or ""
        try:
            message = read(text)
        except DecodeError as error:
            self.set_aside(text.encode("utf-8", "surrogatepass"), error)
            _log.error("parked_unreadable: %s is a dead letter now (%s)", _of(waiting), error)
            return
        self.publish(message)

    def _look(self) -> None:
        now = self.clock.now()
        if self._look_at is not None and now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        if found := self.lanes.recall(self.handlers, BATCH):
            _log.warning("parked_recalled: %d lanes had passed by what was parked there", found)
        # Those that nobody mends are found each time, and must not stand before all others.
        limit = BATCH + len(self._healed)
        gaps = self.lanes.gaps(self.handlers, now - self.gap_after, limit)
        for gap in gaps:
            with self._alone():
                self._mend(gap, now)
        self._forget({(gap.lane, gap.missing) for gap in gaps}, now)
        self.observe(self.lanes.summaries(self.handlers), gaps)

    def _mend(self, gap: Gap, now: datetime) -> None:
        """Send what is missing once more, where it is known; report what is not."""
        key = (gap.lane, gap.missing)
        before = self._healed.get(key)
        if before is not None and now - before < self.gap_after:
            return
        sent = self.heal(gap)
        self._healed[key] = now
        what = f"{gap.missing} of {gap.lane.address} for {gap.lane.handler}"
        if sent:
            _log.warning("gap_sent_again: %d events from sequence %s", sent, what)
            if before is None:
                return  # it may help, as it did not if the gap is found once more
        _log.error(
            "gap: the event of sequence %s is missing, and %d later ones wait since %s; publish it,"
            " or give it up with `angzarr projection skip %s %s --gap`",
            what, gap.waiting, gap.first_waiting.since.isoformat(timespec="seconds"),
            gap.lane.handler, gap.lane.address,
        )  # fmt: skip
        self.facts.append([gap_fact(gap, now)])

    def _forget(self, found: AbstractSet[tuple[Lane, int]], now: datetime) -> None:
        """Forget gaps that are no more; those that were just sent again are not found at once."""
        kept = ((gap, at) for gap, at in self._healed.items())
        self._healed = {g: at for g, at in kept if g in found or now - at < self.gap_after}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let what is wrong with one event keep no other one; raises what all of them need."""
        try:
            yield
        except BrokerUnavailable as error:
            if not error.refused:
                raise
            self._report(error)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - it is lent again, or found again, later
            self._report(error)

    def _report(self, error: Exception) -> None:
        if self.seldom.now():
            known = isinstance(error, Unavailable)
            _log.error("lanes_not_kept: trying again: %s", text_of(error),
                       exc_info=None if known else error)  # fmt: skip


def gap_fact(gap: Gap, at: datetime) -> Fact:
    """Return the fact that an event is missing; it is one however often it is found."""
    lane = gap.lane
    return Fact(
        id=f"{lane.handler}:{lane.address}:{gap.missing}:sequence_gap",
        type="error",
        subtype="sequence_gap",
        at=at,
        entity_id=lane.address.root,
        tool_id=lane.handler,
        data={
            "domain": lane.address.domain,
            "edition": lane.address.edition,
            "missing": gap.missing,
            "waiting": gap.waiting,
            "first_waiting": gap.first_waiting.sequence,
        },
    )


def _of(waiting: Waiting) -> str:
    return f"event {waiting.event_id} of {waiting.lane.address} for {waiting.lane.handler}"
