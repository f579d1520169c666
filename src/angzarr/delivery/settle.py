"""Settler: makes the outcome true; only then is the message acknowledged (spec D6).

In this order: the copy, the letter or what follows is published and confirmed; then the claim is
ended, and its fact is kept with that in one step. That of a copy or a letter is kept before that,
with the question whether the claim is held. A fact that ends no claim is appended. The caller
acknowledges after that.

Every step may be repeated: if one fails the message is held and settle starts over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Letterbox, put_one
from angzarr.dead_letters.replay_outcome import ReplayOutcome, ReplayOutcomes
from angzarr.delivery.claims import SKIPPED, Results
from angzarr.delivery.completions import (
    LeftCompletion,
    is_left_to_ack,
    left_behind,
    left_to_ack,
)
from angzarr.delivery.delivery import (
    WORDS,
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Parked,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
)
from angzarr.delivery.delivery_facts import facts_of, fenced_fact
from angzarr.delivery.ordering import Ordering
from angzarr.delivery.return_copy import ReturnCopy, return_copy
from angzarr.delivery.schedule import FURTHEST, Schedule, copy_of
from angzarr.errors import BrokerUnavailable, DeliveryError, GiveUp, is_absence
from angzarr.facts.fact import FactLog
from angzarr.facts.kept_ids import KeptFactIds
from angzarr.payloads.holders import PayloadHold, PayloadHolders
from angzarr.resilience.idempotency import (
    ClaimEnd,
    Complete,
    Ending,
    Fail,
    IdempotencyStore,
    Position,
    Wait,
)
from angzarr.runtime.failures import FailureCounts
from angzarr.runtime.group_commit import GROUP_COMMIT

_log = logging.getLogger("angzarr.delivery")

#: How often the broker may refuse what a handler wants sent behind its letter.
MOST_REFUSALS: Final = 10
#: How often an answer to a replay is tried that fails though no server is away, in about ten
#: seconds: less than what ends the whole settlement (`retry_until_available.MOST_TRIES`).
MOST_ANSWERS: Final = 8
#: The outcomes by which a replay has its answer: its event is at its end, or waits for others.
_ANSWERS = (Handled, Duplicate, Skipped, DeadLettered, Parked)
#: Those of deliveries without a claim whose event needs no body any more, or has a letter.
_AT_ITS_END = (Duplicate, Refused, DeadLettered)


class Followers(Protocol):
    """The tasks that Celery starts after a success (links, a chain's next step), and who waits."""

    def publish(self, delivery: Delivery, value: Any, /) -> None:
        """Publish them with fixed ids, confirmed; raises BrokerUnavailable otherwise."""

    def tell_retry(self, error: Exception, /) -> None:
        """Tell who waits for the result that the event is tried again; never raises."""

    def has_any(self) -> bool:
        """True if there are some for the delivery that runs here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settler:
    """Makes outcomes true. Built once a process; safe to use from many threads."""

    schedule: Schedule
    followers: Followers
    dead_letters: Letterbox
    replay_outcomes: ReplayOutcomes
    store: IdempotencyStore
    ordering: Ordering
    facts: FactLog
    clock: Clock
    #: Who holds bodies that lie in a payload store; None: there is no store.
    holders: PayloadHolders | None = None
    #: False in an app without a store of payloads: its letters hold no body, so the hold of the
    #: message stays for them.
    letters_hold: bool = True
    #: Which facts of deliveries that come again the claims keep already.
    _kept: KeptFactIds = field(default_factory=KeptFactIds, init=False)
    #: How often each answer to a replay failed that is tried again.
    _unanswered: FailureCounts = field(default_factory=FailureCounts, init=False)

    def settle(self, delivery: Delivery, outcome: Outcome) -> bool:  # noqa: C901, PLR0911, PLR0912 - one case per end
        """Make *outcome* true; return False if a successor took the event over.

        Raises Unavailable, having let nothing go, when a server that it needs is away.
        """
        match outcome:
            case Handled(value=value, result=result):
                if outcome.raised is None:
                    self.followers.publish(delivery, value)
                steps = delivery.position.replay if outcome.clears else None
                return self._end(delivery, outcome, Complete(result=result, steps=steps))
            case Duplicate(value=value, kept=kept, claimed=claimed, skipped=skipped):
                if kept:  # they were published before the claim was completed; their ids are fixed
                    self.followers.publish(delivery, value)
                done = Complete(result=SKIPPED if skipped else None)
                return self._end(delivery, outcome, done if claimed else None)
            case Refused() | Superseded():
                return self._end(delivery, outcome)
            case Skipped(clears=clears):
                steps = delivery.position.replay if clears else None
                return self._end(delivery, outcome, Complete(result=SKIPPED, steps=steps))
            case Postponed(delay=delay, claimed=False):
                hop = delivery.position.hop
                back = return_copy(
                    delivery, outcome, delay, self.clock, attempt=delivery.attempt, hop=hop
                )
                self._send_back(delivery, outcome, back)
                return self._end(delivery, outcome)
            case Postponed(delay=delay):
                return self._come_back(delivery, outcome, delay, attempt=delivery.attempt)
            case Parked():
                return self._park(delivery, outcome)
            case Retried(delay=delay, edited=edited):
                if edited is None and outcome.body is not None:
                    raise DeliveryError("its copy with other arguments was not made")
                again = delivery if edited is None else replace(delivery, message=edited)
                return self._come_back(
                    again,
                    outcome,
                    delay,
                    attempt=delivery.attempt + 1,
                    releases=left_behind(delivery, again),
                )
            case DeadLettered(letter=letter, claimed=False):
                put_one(self.dead_letters, letter)
                return self._end(delivery, outcome)
            case DeadLettered(letter=letter, error=error):
                ending = Fail(error=Results.write_error(error, letter.error_message))
                if not self._owns(delivery, outcome):
                    return self._ended_before(delivery, ending)
                self._put_letter(letter, error)
                return self._end(delivery, outcome, ending)

    def settle_handled(self, handled: Sequence[tuple[Delivery, Handled]]) -> list[bool]:
        """Make plain successes true, as `settle` each, with one ending of all claims.

        If this raises, some may be true: settle each of them again.
        """
        for delivery, outcome in handled:
            self.followers.publish(delivery, outcome.value)
            self._tell(delivery, outcome)
        now = self.clock.now()
        here = [number for number, one in enumerate(handled) if not is_left_to_ack(*one)]
        GROUP_COMMIT.open()  # their log lines are one write
        try:
            ends = [self._completion(*handled[number], now) for number in here]
        finally:
            GROUP_COMMIT.close()
        ours = [True] * len(handled)
        for number, still_ours in zip(
            here, self.store.settle_all(ends) if ends else (), strict=True
        ):
            ours[number] = still_ours
            if not still_ours:
                self._fenced(handled[number][0])
        return ours

    def _completion(self, delivery: Delivery, outcome: Handled, now: datetime) -> ClaimEnd:
        facts = self.facts.carry(facts_of(delivery, outcome, now), before_ack=True)
        ending = Complete(result=outcome.result, releases=delivery.hold)
        return ClaimEnd(delivery.key, delivery.token, ending, facts)

    def is_local(self, delivery: Delivery, outcome: Outcome) -> bool:
        """True if settling *outcome* asks no server: its acknowledgement ends its claim."""
        return (
            is_left_to_ack(delivery, outcome)
            and delivery.letter_id is None
            and not self.followers.has_any()
        )

    def close(self) -> None:
        """Close the dead-letter queue and the fact log."""
        self.dead_letters.close()
        self.facts.close()

    def _put_letter(self, letter: DeadLetter, error: Exception) -> None:
        """Put *letter*, once; then do what a handler that gave up wants done behind it.

        That may have to be tried again, but not for ever what the broker refuses.
        """
        if not isinstance(error, GiveUp):
            put_one(self.dead_letters, letter)
            return
        if error.put_letter != letter.id:
            put_one(self.dead_letters, letter)
            error.put_letter = letter.id
        try:
            error.afterwards()
        except BrokerUnavailable as refused:
            error.refusals += not is_absence(refused)
            if error.refusals < MOST_REFUSALS:
                raise
            _log.error("not_sent_behind_its_letter: letter %s: %s", letter.id, refused)

    def _come_back(
        self,
        delivery: Delivery,
        outcome: Outcome,
        delay: timedelta,
        *,
        attempt: int,
        releases: PayloadHold | None = None,
    ) -> bool:
        """Publish the copy, one hop on, and let the record wait for it."""
        hop = delivery.position.hop + 1
        delay = min(delay, FURTHEST)
        position = Position(delivery.position.replay, hop)
        ending = Wait(position=position, delay=delay, releases=releases)
        if not self._owns(delivery, outcome):
            return self._ended_before(delivery, ending)
        if isinstance(outcome, Retried):
            # Before the copy exists: it may end at once, and its end is the one that stays.
            self.followers.tell_retry(outcome.error)
        back = return_copy(delivery, outcome, delay, self.clock, attempt=attempt, hop=hop)
        self._send_back(delivery, outcome, back)
        return self._end(delivery, outcome, ending)

    def _send_back(self, delivery: Delivery, outcome: Outcome, back: ReturnCopy) -> None:
        """Note the copy in its lane, then publish it: a lane that is away costs no further copy."""
        self.ordering.follow(delivery, outcome, back.copy)
        self.schedule.put(*back)

    def _park(self, delivery: Delivery, outcome: Parked) -> bool:
        """Keep the copy in its lane, one hop on, and let the record wait for it."""
        hop = delivery.position.hop + 1
        ending = Wait(position=Position(delivery.position.replay, hop), delay=timedelta(0))
        if not self._owns(delivery, outcome):
            return self._ended_before(delivery, ending)
        copy = copy_of(delivery, attempt=delivery.attempt, hop=hop)
        again = self.ordering.park(outcome, copy)
        if again is not None:
            back = return_copy(
                delivery, outcome, again, self.clock, attempt=delivery.attempt, hop=hop
            )
            self.schedule.put(*back)
        return self._end(delivery, outcome, ending)

    def _owns(self, delivery: Delivery, outcome: Outcome) -> bool:
        """True if *delivery* holds its claim still; the facts of *outcome* are kept then.

        That is before its copy or letter exists: a copy may run, and end, before this claim has
        ended, and after a kill the event may end otherwise. A settle that starts over puts none of
        them again.
        """
        facts = self._kept.new_of(facts_of(delivery, outcome, self.clock.now()))
        lines = self.facts.lines(facts)
        if not self.store.owns(delivery.key, delivery.token, lines):
            return False
        if lines:
            self._kept.add(facts)
        return True

    def _ended_before(self, delivery: Delivery, ending: Ending) -> bool:
        """True if an earlier try of this settle ended the claim and only its reply was lost.

        If not, a successor took the event over: nothing is published.
        """
        if self.store.settle(delivery.key, delivery.token, ending):
            return True
        self._fenced(delivery)
        return False

    def _end(self, delivery: Delivery, outcome: Outcome, ending: Ending | None = None) -> bool:
        """Move its lane, tell the analysis worker, end the claim with its fact."""
        self._tell(delivery, outcome)
        if is_left_to_ack(delivery, outcome):
            return True  # its fact too: see `leave`
        facts = facts_of(delivery, outcome, self.clock.now())
        if ending is None:
            self._release(delivery, outcome)
            self.facts.append(facts)
            return True
        if isinstance(ending, Complete | Fail) and delivery.is_elsewhere:
            ending = replace(ending, releases=self._released(delivery, outcome))
        lines = self.facts.carry(facts)
        if asked := isinstance(ending, Wait | Fail):  # by `_owns`, which keeps their facts
            lines = lines if self._kept.new_of(facts) else ()
        ended = self.store.settle(delivery.key, delivery.token, ending, lines)
        if asked:
            self._kept.forget(facts)
        if not ended:
            self._fenced(delivery)
        return ended

    def _release(self, delivery: Delivery, outcome: Outcome) -> None:
        """Release the body of an event that is at its end without a claim of this delivery.

        Its publisher registered it anew, if it sent the event twice.
        """
        if self.holders is None or not isinstance(outcome, _AT_ITS_END):
            return
        if (hold := self._released(delivery, outcome)) is not None:
            self.holders.release([hold])

    def _released(self, delivery: Delivery, outcome: Outcome) -> PayloadHold | None:
        """The hold that ends with *outcome*; None: there is none, or it stays for the letter."""
        if isinstance(outcome, DeadLettered) and not self.letters_hold:
            return None
        return delivery.hold

    def _tell(self, delivery: Delivery, outcome: Outcome) -> None:
        self.ordering.follow(delivery, outcome)
        self._answer_replay(delivery, outcome)

    def leave(self, delivery: Delivery, outcome: Outcome | None) -> LeftCompletion | None:
        """What the acknowledgement of *delivery*, which was settled, is to end its claim with.

        None: its claim has ended, or there is none.
        """
        completion = left_to_ack(delivery, outcome)
        if completion is None or outcome is None:
            return None
        facts = facts_of(delivery, outcome, self.clock.now())
        return LeftCompletion(completion, self.facts.carry(facts, before_ack=True))

    def complete(self, delivery: Delivery, left: LeftCompletion) -> None:
        """Make a completion true that could not be left to the acknowledgement after all."""
        GROUP_COMMIT.write()  # its fact may wait for that
        if not self.store.settle(delivery.key, delivery.token, left.completion, left.facts):
            self._fenced(delivery)

    def _fenced(self, delivery: Delivery) -> None:
        self.facts.append([fenced_fact(delivery, self.clock.now())])

    def _answer_replay(self, delivery: Delivery, outcome: Outcome) -> None:
        if delivery.letter_id is None or not isinstance(outcome, _ANSWERS):
            return
        answer = ReplayOutcome(
            letter_id=delivery.letter_id,
            replay=delivery.position.replay,
            outcome=WORDS[type(outcome)],
            handler=delivery.handler,
            event_id=delivery.event.id,
        )
        try:
            self.replay_outcomes.put(answer)
        except Exception as error:
            if is_absence(error) or not self._is_given_up(answer, error):
                raise
        self._unanswered.forget(answer.letter_id)

    def _is_given_up(self, answer: ReplayOutcome, error: Exception) -> bool:
        """True if *answer* is given up: *error*, which is not an absence, met it too often.

        Its entry is held at its deadline then, and a person looks at it; to run the event again
        for want of an answer would be worse.
        """
        if self._unanswered.add(answer.letter_id) < MOST_ANSWERS:
            return False
        _log.critical(
            "replay_not_answered: event %s was %s as replay %d of letter %s, whose entry is held"
            " at its deadline: %r",
            answer.event_id, answer.outcome, answer.replay, answer.letter_id, error,
        )  # fmt: skip
        return True
