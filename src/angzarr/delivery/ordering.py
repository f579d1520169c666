"""Ordering: what ordered handlers add to a delivery, before its run and when it is settled (P3).

An event that comes early is parked in its lane. It comes again when the lane is moved to it: by
the delivery of the event before it, or by the lane's keeper (`gap_monitor`) if that one died.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.delivery.delivery import (
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Parked,
    Postponed,
    Retried,
    Skipped,
    position_of,
)
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.delivery.schedule import FURTHEST, Schedule, read_row, row_of
from angzarr.errors import BrokerUnavailable, DecodeError
from angzarr.events.event import Event, Message
from angzarr.events.headers import check_sequence, from_headers, skip_of
from angzarr.ordering.lane import (
    Full,
    Moved,
    Order,
    Place,
    Ready,
    SkipCause,
    Step,
    Taken,
    Waiting,
    Why,
    lane_of,
)
from angzarr.ordering.lanes import Lanes, Turn
from angzarr.resilience.idempotency import RECORD_LIFE
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.ordering")

T = TypeVar("T")

#: Before an event is parked its lane is asked again after these: who runs the one before it needs
#: some milliseconds, and to park costs more than to wait in the slot.
ASKED_AGAIN: Final = tuple(timedelta(milliseconds=pause) for pause in (2, 4, 8))
#: No event that is further ahead than this waits in its slot.
NEAR: Final = 4
#: How long an event waits in the schedule whose lane is full.
FULL_WAIT: Final = timedelta(minutes=1)
#: How long an event waits whose read model is just being replaced.
SHUT_WAIT: Final = timedelta(seconds=2)
#: A lane notes copies that come later than this, or are at this hop, so that an event that waits,
#: or goes round in short waits, does not look like a gap. Others are too many to be noted.
NOTED_FROM: Final = timedelta(seconds=30)
NOTED_FROM_HOP: Final = 3


def skipped_by_person(reason: str) -> str:
    """Why a delivery is skipped that says *reason*."""
    return f"skipped by a person: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """Built once a process; safe to use from many threads. The lanes open when first needed."""

    lanes: Callable[[], Lanes]
    handlers: Handlers
    retry: RetryUntilAvailable
    schedule: Schedule
    clock: Clock
    #: Events that may be parked in one lane.
    most_parked: int
    #: Gets a handler and how long ago the event occurred that it has just handled.
    late: Callable[[str, timedelta], object] = lambda _handler, _behind: None
    seldom: LogThrottle = field(default_factory=LogThrottle)

    def turn(self, delivery: Delivery, handler: Handler) -> Turn | None:
        """The turn of *delivery*, None without an order, or where a skip has no place.

        Raises DecodeError for any other event that has no place in an aggregate.
        """
        if handler.order is None:
            return None
        skips = skip_of(delivery.message.headers) is not None
        # A message without a type is read as one of its task's name; a skip needs none.
        if delivery.event.type == handler.name and not skips:
            msg = f"{handler.name} goes by the types of events, and this one says none: publish it"
            raise DecodeError(msg)
        try:
            check_sequence(delivery.message.headers)
            return self._turn(delivery, handler, handler.order)
        except DecodeError:
            if skips:  # it is done with when its entry is: nothing waits behind it
                return None
            raise

    def _turn(self, delivery: Delivery, handler: Handler, order: Order) -> Turn:
        return Turn(self.lanes(), self._step(delivery.event, handler, order, delivery.token))

    def _step(self, event: Event, handler: Handler, order: Order, token: str = "") -> Step:
        lane = lane_of(event, handler.name, order)
        assert event.sequence is not None  # noqa: S101 - or it had no lane
        return Step(
            lane,
            event.sequence,
            event.id,
            event.type,
            event.occurred_at,
            self.clock.now(),
            token,
        )

    def enter(
        self, turn: Turn, delivery: Delivery, handler: Handler, *, runs: bool = False
    ) -> Outcome | None:
        """The outcome of *delivery* without a run; None: it is its turn.

        *runs*: it is run then. A transaction may have begun for that, so leave the turn.
        """
        order, reason = handler.order, skip_of(delivery.message.headers)
        assert order is not None  # noqa: S101 - or there was no turn
        runs = runs and order.moves and reason is None and delivery.event.type in order.types
        sequence, place = turn.step.sequence, self._look(turn, delivery, runs=runs)
        if place is None:
            why = f"the read model of {handler.name} is just being replaced or rebuilt"
            return Postponed(delay=SHUT_WAIT, why=why, claimed=True, shut=True)
        if sequence < place.next_sequence:
            return self._passed(turn, delivery, order)
        if sequence > place.next_sequence:
            return Parked(turn=turn, next_sequence=place.next_sequence)
        if reason is not None:
            return Skipped(reason=skipped_by_person(reason))
        if delivery.event.type not in order.types:
            return Skipped(reason=f"{handler.name} takes no {delivery.event.type}")
        return None

    def _passed(self, turn: Turn, delivery: Delivery, order: Order) -> Duplicate:
        """The outcome of *delivery* whose lane is past it, though it holds the claim.

        If it was moved by a run of this event, that run died before its claim ended with its fact.
        Where it moved its lane itself, nothing else of it may be true.
        """
        since = self.clock.now() - RECORD_LIFE
        end = self._ask(partial(turn.ended, since), delivery)
        skipped = end is not None and end.skipped is not None
        return Duplicate(
            kept=order.moves and not skipped, claimed=True, skipped=skipped, untold=end
        )

    def set_back(self, turn: Turn | None, delivery: Delivery) -> bool:
        """True if the lane of *delivery*, which was completed, was set back before it.

        A reset, or a rebuild that left its aggregate behind, wants it handled once more. A lane
        moves before a claim is completed, so there is no other way to be here.
        """
        if turn is None:
            return False
        return self._ask(turn.look, delivery).next_sequence <= turn.step.sequence

    def _ask(self, look: Callable[[], T], delivery: Delivery) -> T:
        return self.retry.until_done(look, what="look at its lane", delivery=delivery)

    def _look(self, turn: Turn, delivery: Delivery, *, runs: bool) -> Place | None:
        """Where its lane is, once *delivery* has waited a little for its turn."""
        place = self._ask(turn.enter if runs else turn.look, delivery)
        for pause in ASKED_AGAIN:
            if place is None:
                break
            ahead = turn.step.sequence - place.next_sequence
            if place.waiting or not 0 < ahead <= NEAR:
                break
            self.clock.sleep(pause)
            place = self._ask(turn.look, delivery)
        return place

    def park(self, parked: Parked, copy: Message) -> timedelta | None:
        """Keep *copy* in its lane: None once kept, else the time after which it comes again.

        Raises StoreUnavailable; DeliveryError for what could never be read again.
        """
        answer = parked.turn.lanes.park(
            self._waiting(parked.turn.step, Why.EARLY, text=row_of(copy).text), self.most_parked
        )
        match answer:
            case Ready():
                return timedelta(0)
            case Full(parked=count):
                self._report_full(parked.turn.step, count)
                return FULL_WAIT
            case Taken(event_id=other):
                self._report_taken(parked.turn.step, other)
                return FULL_WAIT
            case _:
                return None

    def follow(self, delivery: Delivery, outcome: Outcome, copy: Message | None = None) -> None:
        """Let the lane of *delivery* follow its *outcome*; safe to repeat.

        *copy* is what comes again of it, if it does.
        Raises Unavailable: what is away may be the lanes' database, the schedule or the broker.
        """
        handler = self.handlers.get(delivery.handler)
        if handler is None or handler.order is None:
            return
        try:
            turn = self._turn(delivery, handler, handler.order)
        except DecodeError:  # it is a letter for that, and has no lane
            return
        match outcome:
            case Handled(moved=Moved() as moved):
                self._release(turn, moved)
            case Handled() | Skipped():
                self._move(turn, outcome)
            case DeadLettered(letter=letter, claimed=claimed):
                self._note_letter(turn, letter, claimed=claimed)
            case Retried(delay=delay) if copy is not None:
                self._retried(turn, copy, delay, claimed=True)
            case Postponed(shut=True):  # who has shut the gate locks the lanes
                pass
            case Postponed(delay=delay, claimed=claimed) if copy is not None:
                self._retried(turn, copy, delay, claimed=claimed)
            case _:
                pass
        if isinstance(outcome, Handled):
            self._report_late(turn.step)

    def _move(self, turn: Turn, outcome: Handled | Skipped) -> None:
        step = turn.step
        if isinstance(outcome, Skipped):
            step = step._replace(skipped=SkipCause(outcome.reason, outcome.switch))
        answer = turn.lanes.move(step)
        if isinstance(answer, Moved):
            self._release(turn, answer)

    def _note_letter(self, turn: Turn, letter: DeadLetter, *, claimed: bool) -> None:
        """Note *letter*, but for a second body under one id: the lane does not wait for that."""
        if letter.reason is not Reason.CONFLICT:
            noted = self._waiting(turn.step, Why.DEAD_LETTER, letter_id=letter.id)
            turn.lanes.note(noted, claimed=claimed)

    def _report_late(self, step: Step) -> None:
        if step.occurred_at is not None:
            self.late(step.lane.handler, step.at - step.occurred_at)

    def note_dead_letter(self, message: Message, letter_id: str) -> None:
        """Note in its lane that the unreadable *message* is a dead letter.

        Nothing, if its headers tell no lane either. Raises StoreUnavailable; safe to repeat.
        """
        handler = self.handlers.get(message.task)
        if handler is None or handler.order is None:
            return
        event = from_headers(message.headers, data=None, event_id=message.id, type=message.task)
        try:
            step = self._step(event, handler, handler.order)
        except DecodeError:
            return
        noted = self._waiting(step, Why.DEAD_LETTER, letter_id=letter_id)
        self.lanes().note(noted, claimed=False)

    def _retried(self, turn: Turn, copy: Message, delay: timedelta, *, claimed: bool) -> None:
        """Note *copy* in its lane: should it be lost, it is sent again as it is."""
        if delay >= NOTED_FROM or position_of(copy.headers).hop >= NOTED_FROM_HOP:
            due_at = self.clock.now() + min(delay, FURTHEST)
            known = {"due_at": due_at, "text": row_of(copy).text}
            turn.lanes.note(self._waiting(turn.step, Why.RETRYING, **known), claimed=claimed)

    def _waiting(self, step: Step, why: Why, **said: Any) -> Waiting:
        return Waiting(
            lane=step.lane,
            sequence=step.sequence,
            why=why,
            since=self.clock.now(),
            event_id=step.event_id,
            event_type=step.event_type,
            **said,
        )

    def _release(self, turn: Turn, moved: Moved) -> None:
        """Let the successor come, if one is parked: published first, then forgotten."""
        if moved.successor is None:
            return
        try:
            message = read_row(moved.successor.text or "")
        except DecodeError as error:  # its keeper makes a letter of it
            _log.error("parked_unreadable: event %s: %s", moved.successor.event_id, error)
            return
        try:
            self.schedule.put(message, self.clock.now())
        except BrokerUnavailable as error:
            if not error.refused:
                raise
            # It is not the fault of this event, and its keeper tries it again.
            _log.error("parked_refused: event %s: %s", moved.successor.event_id, error)
            return
        turn.lanes.released(moved.successor)

    def _report_full(self, step: Step, count: int) -> None:
        if self.seldom.now(f"{step.lane.handler} {step.lane.address}"):
            _log.critical(
                "lane_full: %d events of %s wait for %s; further ones come again every %s. See"
                " `angzarr projection show %s`",
                count, step.lane.address, step.lane.handler, FULL_WAIT, step.lane.handler,
            )  # fmt: skip

    def _report_taken(self, step: Step, other: str) -> None:
        if self.seldom.now(f"{step.lane.handler} {step.lane.address} {step.sequence}"):
            _log.error(
                "sequence_taken: event %s says sequence %d of %s, as event %s does that came first;"
                " only one of them can be handled by %s. See that publishers number events once",
                step.event_id, step.sequence, step.lane.address, other, step.lane.handler,
            )  # fmt: skip
