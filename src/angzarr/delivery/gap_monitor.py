"""LaneKeeper: looks after lanes beside the deliveries (spec P3).

It publishes what was parked behind a lane that a process moved before it died, and it finds lanes
that wait for an unknown event. Mostly one keeper in the fleet is on duty, of those
that keep the same handlers. Where there are two for a while, each event is lent to, and each gap
taken by, one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from angzarr.clock import Clock
from angzarr.delivery.retry_until_available import MOST_TRIES
from angzarr.delivery.schedule import read_row
from angzarr.errors import (
    BrokerUnavailable,
    DecodeError,
    StoreUnavailable,
    Unavailable,
    is_absence,
    text_of,
)
from angzarr.events.event import Message
from angzarr.facts.fact import Fact, FactLog
from angzarr.ordering.lane import Gap, Summary, Waiting, Why
from angzarr.ordering.lanes import Lanes
from angzarr.resilience.idempotency import RECORD_LIFE
from angzarr.runtime.failures import FailureCounts, LogThrottle, is_machine_fault

_log = logging.getLogger("angzarr.ordering")

#: How often due events are looked for. A kill delays what it left by as much.
EVERY: Final = timedelta(seconds=2)
#: How often gaps are looked for, and lanes counted.
LOOK_EVERY: Final = timedelta(seconds=30)
#: How often all that is parked is gone through for what lanes have passed by.
RECALL_EVERY: Final = timedelta(minutes=10)
#: How long a keeper is on duty after it said so last.
TENURE: Final = timedelta(seconds=15)
#: How long due events are lent to one keeper.
LEASE: Final = timedelta(seconds=30)
BATCH: Final = 100
#: Messages that are sent for gaps by one look.
MOST: Final = 2_000
#: Ends of steps that are forgotten in one transaction, and by one look.
ENDS: Final = 5_000
MOST_ENDS: Final = 100_000
#: How often what is missing is sent as its publisher sent it; then it goes before all copies.
PLAIN: Final = 2
#: How long what was sent more than once is not sent again, at least.
REST: Final = timedelta(hours=1)


class Heal(Protocol):
    """Sends events that are missing once more."""

    def __call__(self, gap: Gap, most: int, /, *, above_all: bool) -> int:
        """Send at most *most* of what is known of them; return how many, 0: of none.

        *above_all*: in place of all copies that there may be of them, whose attempts are forgotten.
        """


@dataclass(slots=True, kw_only=True)
class LaneKeeper:
    """Fulfils `Turns`; called by one thread."""

    lanes: Lanes
    #: The ordered handlers of this worker, by name.
    handlers: Sequence[str]
    publish: Callable[[Message], None]
    #: Makes a dead letter of an unreadable parked message.
    set_aside: Callable[[bytes, Exception], None]
    #: Makes a dead letter of one that can never be sent, and returns its id.
    dead_letter: Callable[[Message, Exception], str]
    heal: Heal
    #: Gets how many events wait and where one is missing.
    observe: Callable[[Sequence[Summary], Sequence[Gap]], None]
    facts: FactLog
    clock: Clock
    #: After how long an event that is missing is sent again, or reported.
    gap_after: timedelta
    #: Names this keeper among those of the fleet.
    name: str
    close: Callable[[], None]
    seldom: LogThrottle = field(default_factory=LogThrottle)
    #: How often a parked event could not be sent though no server was away.
    _refusals: FailureCounts = field(default_factory=FailureCounts, init=False)
    _look_at: datetime | None = field(default=None, init=False)
    _recall_at: datetime | None = field(default=None, init=False)

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
            message = read_row(text)
        except DecodeError as error:
            self.set_aside(text.encode("utf-8", "surrogatepass"), error)
            _log.error("parked_unreadable: %s is a dead letter now (%s)", _of(waiting), error)
            return
        place = (waiting.lane, waiting.sequence)
        try:
            self.publish(message)
        except Exception as error:
            if is_absence(error) or is_machine_fault(error):
                raise
            if self._refusals.add(place) < MOST_TRIES:
                raise
            self._give_up(waiting, message, error)
        self._refusals.forget(place)

    def _give_up(self, waiting: Waiting, message: Message, error: Exception) -> None:
        """Make a dead letter of *message*; its lane stands at it, as at any other."""
        letter_id = self.dead_letter(message, error)
        noted = replace(waiting, why=Why.DEAD_LETTER, text=None, letter_id=letter_id)
        self.lanes.note(noted)
        _log.error("parked_given_up: %s is a dead letter now (%r)", _of(waiting), error)

    def _look(self) -> None:
        now = self.clock.now()
        if self._look_at is not None and now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        with self._each():  # what takes the database too long keeps nothing else from being seen
            self._recall(now)
        with self._each():
            self._forget_ends(now - RECORD_LIFE)
        gaps: Sequence[Gap] = []
        with self._each():
            gaps = self.lanes.gaps(self.handlers, now - self.gap_after, BATCH)
            self._mend(gaps)
        self.observe(self.lanes.summaries(self.handlers), gaps)

    def _recall(self, now: datetime) -> None:
        if self._recall_at is not None and now < self._recall_at:
            return
        self._recall_at = now + RECALL_EVERY
        if found := self.lanes.recall(self.handlers, BATCH):
            _log.warning("parked_recalled: %d lanes had passed by what was parked there", found)

    def _forget_ends(self, before: datetime) -> None:
        """Forget how steps ended whose claims, if they never ended, are forgotten as well."""
        for _ in range(MOST_ENDS // ENDS):
            if self.lanes.forget_ends(before, ENDS) < ENDS:
                return

    def _mend(self, gaps: Sequence[Gap]) -> None:
        """Send missing events once more, where they are known; report the others."""
        left = MOST
        for gap in gaps:
            now = self.clock.now()
            waits = gap.sent_until is not None and gap.sent_until > now
            if waits or left <= 0 or not self.lanes.on_duty(self.name, TENURE, of=self.handlers):
                return  # those that may be sent soonest come first
            with self._alone():
                left -= self._mend_one(gap, left, now)

    def _mend_one(self, gap: Gap, most: int, now: datetime) -> int:
        """How many events were sent; the keeper that notes a gap first sends them."""
        taken = gap._replace(sent_until=now + self.gap_after)
        if not self.lanes.sending(gap, gap.sent, now + self.gap_after):
            return 0
        sent: int | None = None
        with self._alone():  # or the same would be tried for ever, without a report
            sent = self.heal(gap, most, above_all=gap.sent >= PLAIN)
        if gap.sent:
            self.lanes.sending(taken, gap.sent + 1, now + max(self.gap_after, REST))
        else:
            self.lanes.sending(taken, 1, now + self.gap_after)
        self._tell(gap, sent, now)
        return sent or 0

    def _tell(self, gap: Gap, sent: int | None, now: datetime) -> None:
        """Report *gap*: as an error where sending does not help, or what is missing is unknown.

        *sent* is None where it failed.
        """
        place = gap.lane.address
        what = f"{gap.missing} of {place} for {gap.lane.handler}"
        if sent and gap.sent <= PLAIN:
            _log.warning(
                "gap_sent_again: %d events from sequence %s, time %d; those that are queued,"
                " running or postponed all the same become duplicates", sent, what, gap.sent + 1,
            )  # fmt: skip
            return
        if sent is None:
            why = "could not be sent again"
        elif sent:
            why = f"was sent again {gap.sent + 1} times"
        else:
            why = "is in no event book"
        _log.error(
            "gap: the event of sequence %s is missing and %s, and %d later ones wait since %s; if"
            " it is neither queued nor running, replay it if it is a letter, publish it, or give it"
            " up with `angzarr projection skip %s %s --gap`",
            what, why, gap.waiting, gap.first_waiting.since.isoformat(timespec="seconds"),
            gap.lane.handler, place,
        )  # fmt: skip
        self.facts.append([gap_fact(gap, now)])

    @contextmanager
    def _each(self) -> Iterator[None]:
        """Report what fails, and go on with what comes next."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it is looked for again
            self._report(error)

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
    """The fact that an event is missing; it is one however often it is found."""
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
