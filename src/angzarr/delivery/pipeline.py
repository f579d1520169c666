"""The heart: one delivery in, one outcome out. Read it top to bottom.

decode → claim → admission → handler → outcome. Nothing outside is touched but the claim, the
flow control and the handler; `settle` makes the outcome true afterwards (spec D6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from angzarr.clock import Clock
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.admission import FREE, Admission
from angzarr.delivery.claims import SKIPPED, Claimer, LastStarts, Results
from angzarr.delivery.compensation_runner import CompensationRunner, Steps
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import (
    WORDS,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Postponed,
    Refused,
    Skipped,
    Superseded,
)
from angzarr.delivery.failure_policy import (
    NO_FOLLOWER,
    NO_HANDLER,
    POISON,
    UNREADABLE,
    UNSETTLED,
    FailurePolicy,
    too_old,
)
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.delivery.invoke import HandlerCall, HandlerInvoker, Stopped, handler_call
from angzarr.delivery.letter_builder import EndOfLastRun, read_last_words
from angzarr.delivery.ordering import Ordering, skipped_by_person
from angzarr.delivery.schedule import SLEPT
from angzarr.delivery.step_retry import InPlace
from angzarr.errors import (
    DecodeError,
    DeliveryError,
    PoisonError,
    text_of,
)
from angzarr.events.headers import skip_of
from angzarr.ordering.lanes import Turn
from angzarr.resilience import idempotency as claims
from angzarr.resilience.breaker_guard import BreakerGuard
from angzarr.resilience.taxonomy import Classification
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.delivery")

#: How long a delivery waits that finds its event in another worker's hands (spec D4).
IN_PROGRESS_WAIT = timedelta(seconds=2)
#: Starts that nobody settled before the event counts as poison (spec D4).
MOST_STARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Decides. Built once a process; safe to use from many threads."""

    handlers: Handlers
    claiming: Claimer
    ordering: Ordering
    admission: Admission
    caller: HandlerInvoker
    results: Results
    judge: FailurePolicy
    clock: Clock
    make_log: Callable[[Mapping[str, Any]], Any]
    #: Makes a breaker around one call inside a handler.
    make_breaker: Callable[[Handler | None, str], BreakerGuard]
    in_place: InPlace
    undoing: CompensationRunner
    last_starts: LastStarts
    most_starts: int = MOST_STARTS

    def decide(self, delivery: Delivery, failed: Exception | None = None) -> Outcome:
        """Return what becomes of *delivery*; raises GivenBack if the worker stops first.

        Where *failed* is given the handler is not called: that is how the delivery ended before,
        or outside, its handler.
        """
        if failed is None and delivery.rest_ms:
            self.clock.sleep(min(timedelta(milliseconds=delivery.rest_ms), SLEPT))
        handler = self.handlers.get(delivery.handler)
        if handler is None:
            missing = DecodeError(f"no handler is registered as {delivery.handler!r}")
            return self.judge.unreadable(delivery, None, missing, NO_HANDLER)
        policy = self.judge.policy(delivery, handler)
        retries = partial(self.in_place.retrying, delivery, handler, self.clock.now())
        steps = self.undoing.open(delivery, handler, retries)
        try:
            turn = self.ordering.turn(delivery, handler)
            context = Context(
                delivery=delivery,
                policy=policy,
                make_log=self.make_log,
                make_breaker=partial(self.make_breaker, handler),
                make_retries=retries,
                steps=steps,
                make_final=partial(self.judge.is_final, delivery, handler),
                turn=turn,
            )
            reason = skip_of(delivery.message.headers)
            if reason is not None:  # its body need fit nothing, and it may have no order any more
                go_on = partial(self._pass_over, steps, turn=turn, reason=reason)
            elif failed is None:
                run = handler_call(delivery, handler, context)
                go_on = partial(self._begin, steps, turn=turn, run=run)
            else:
                go_on = partial(self._fail, steps, turn=turn, error=failed)
            # Who claimed before has read the body and found that it can be compared.
            claim = delivery.claim if delivery.answer is None else None
        except Exception as error:  # a DecodeError, or what a model's own code raises
            if is_machine_fault(error):
                raise  # it says nothing of the message, which goes back
            return self.judge.unreadable(delivery, handler, error, UNREADABLE)
        return self._claim(delivery, handler, go_on, claim, turn)

    def no_follower(
        self, delivery: Delivery, error: DeliveryError, *, clears: bool, claimed: bool
    ) -> Outcome:
        """Return what becomes of a delivery whose result, or copy, can never be published."""
        return self._dead_after_all(delivery, error, NO_FOLLOWER, clears=clears, claimed=claimed)

    def unsettled(self, delivery: Delivery, outcome: Outcome, error: Exception) -> Outcome:
        """Return what becomes of a delivery that holds its event and whose *outcome* stays a wish.

        *error* met each try to make it true, and no server was away.
        """
        named = f"its outcome, {WORDS[type(outcome)]}, cannot be made true"
        unsettled = DeliveryError(f"{named}: {type(error).__name__}: {text_of(error)}")
        unsettled.__cause__ = error
        clears = isinstance(outcome, Handled | Skipped) and outcome.clears
        return self._dead_after_all(delivery, unsettled, UNSETTLED, clears=clears)

    def _dead_after_all(
        self,
        delivery: Delivery,
        error: DeliveryError,
        seen: Classification,
        *,
        clears: bool,
        claimed: bool = True,
    ) -> Outcome:
        handler = self.handlers.get(delivery.handler)
        dead = self.judge.dead(delivery, handler, error, Reason.REFUSED, seen, claimed=claimed)
        if handler is None or not clears:
            return dead
        retries = partial(self.in_place.retrying, delivery, handler, self.clock.now())
        steps = self.undoing.open(delivery, handler, retries)
        self.undoing.meet(steps, left_some=True)
        return self.undoing.after(steps, dead)

    def _claim(  # noqa: PLR0911 - one case for each answer of the store
        self,
        delivery: Delivery,
        handler: Handler,
        go_on: Callable[[claims.Claimed], Outcome],
        claim: claims.Claim | None,
        turn: Turn | None,
    ) -> Outcome:
        answer = delivery.answer if claim is None else self.claiming.ask(delivery, claim)
        if isinstance(answer, claims.AlreadyCompleted) and self.ordering.set_back(turn, delivery):
            answer = self.claiming.ask(delivery, replace(delivery.claim, anew=True))
        match answer:
            case claims.Claimed():
                return go_on(answer)
            case claims.AlreadyCompleted(result=None):
                return Duplicate(kept=False)
            case claims.AlreadyCompleted(result=str(result)):
                return self._duplicate(result)
            case claims.AlreadyFailed(error=error):
                return Refused(error=self.results.read_error(error))
            case claims.SupersededClaim():
                return Superseded()
            case claims.InProgress():
                return Postponed(delay=IN_PROGRESS_WAIT, why="in progress", claimed=False)
            case _:
                return self.judge.conflict(delivery, handler)

    def _duplicate(self, result: str) -> Duplicate:
        if result == SKIPPED:
            return Duplicate(kept=False, skipped=True)
        try:
            return Duplicate(value=self.results.read(result))
        except Exception as error:  # text of another release is no reason to hold
            if is_machine_fault(error):
                raise  # it goes back, and its followers get the result later
            _log.warning("result_unreadable: a duplicate goes without it: %s", error)
            return Duplicate(kept=False)

    def _pass_over(
        self, steps: Steps, claimed: claims.Claimed, turn: Turn | None, reason: str
    ) -> Outcome:
        """Return what becomes of a skip: in its turn its lane goes on, and no handler runs."""
        del claimed
        entered = turn and self.ordering.enter(turn, steps.delivery, steps.handler)
        return entered or Skipped(reason=skipped_by_person(reason))

    def _fail(
        self, steps: Steps, claimed: claims.Claimed, turn: Turn | None, error: Exception
    ) -> Outcome:
        """Return what becomes of a delivery that did not end by its handler's return (D7)."""
        if turn and (outcome := self.ordering.enter(turn, steps.delivery, steps.handler)):
            return outcome  # before its turn there is nothing to judge
        self.undoing.meet(steps, left_some=claimed.steps)
        delivery, handler = steps.delivery, steps.handler
        if claimed.starts > self.most_starts:
            return self._poison(steps, claimed)
        return self.undoing.after(steps, self.judge.ended(delivery, handler, error), error)

    def _begin(
        self, steps: Steps, claimed: claims.Claimed, turn: Turn | None, run: HandlerCall
    ) -> Outcome:
        """Run it when it is its turn, and say how that moved its lane."""
        if turn is None:
            return self._start(steps, claimed, run)
        try:
            if outcome := self.ordering.enter(turn, steps.delivery, steps.handler, runs=True):
                return outcome
            if self._asks(steps.delivery, claimed):
                turn.leave()  # the run looks again: nothing is to be open while a store is away
            outcome = self._start(steps, claimed, run)
        finally:
            turn.leave()
        return replace(outcome, moved=turn.moved) if isinstance(outcome, Handled) else outcome

    def _asks(self, delivery: Delivery, claimed: claims.Claimed) -> bool:
        """Tell whether the claim store or the step log is asked between the look and the run."""
        if claimed.steps or delivery.redelivered or not self.claiming.is_sure(claimed):
            return True
        return self._unsettled(delivery, claimed) >= self.most_starts - 1

    def _unsettled(self, delivery: Delivery, claimed: claims.Claimed) -> int:
        """Return how often it was started before and never came to an end."""
        return claimed.starts if delivery.rides else claimed.starts - 1

    def _start(self, steps: Steps, claimed: claims.Claimed, run: HandlerCall) -> Outcome:
        """Run it, the last start that it has beside no other one: an undo may kill, too."""
        starts, delivery = claimed.starts, steps.delivery
        if not self.claiming.holds(delivery, claimed):
            return Postponed(delay=IN_PROGRESS_WAIT, why="taken over", claimed=False)
        if claimed.steps or delivery.redelivered:
            self.undoing.meet(steps, left_some=claimed.steps)
        if self._unsettled(delivery, claimed) < self.most_starts - 1:
            return self._run(steps, run)
        if starts <= self.most_starts:
            return self.last_starts.alone(delivery, partial(self._run, steps, run))
        if not steps.known:
            return self._poison(steps, claimed)
        return self.last_starts.alone(delivery, partial(self._poison, steps, claimed))

    def _run(self, steps: Steps, run: HandlerCall) -> Outcome:
        """Run it, once what was left half undone is undone; then undo what it leaves behind."""
        failed = self.undoing.resume(steps) if steps.known else None
        if failed is not None:
            outcome = self.judge.ended(steps.delivery, steps.handler, failed)
        else:
            outcome = self._admit(steps.delivery, steps.handler, run)
        return self.undoing.after(steps, outcome) if steps.known else outcome

    def _admit(self, delivery: Delivery, handler: Handler, run: HandlerCall) -> Outcome:
        passage = self.admission.enter(delivery, handler)
        if isinstance(passage, Stopped):
            return self._stopped(delivery, handler, run, passage)
        if isinstance(passage, Skipped):
            return passage
        began = self.clock.now()
        try:
            ended = self.caller.call(delivery, handler, run.call)
        except BaseException:
            self.admission.forgo(passage)  # cut short: it says nothing
            raise
        if passage is not FREE:
            self.admission.leave(passage, handler, ended, self.clock.now() - began)
        if isinstance(ended.outcome, Stopped):
            return self._stopped(delivery, handler, run, ended.outcome)
        return ended.outcome

    def _stopped(
        self, delivery: Delivery, handler: Handler, run: HandlerCall, stopped: Stopped
    ) -> Outcome:
        """Return what becomes of a delivery that may not call its handler now; no attempt used."""
        if stopped.breaker is not None and run.instead is not None:
            ended = self.caller.call(delivery, handler, run.instead)
            if not isinstance(ended.outcome, Stopped):
                return ended.outcome
        overdue = stopped.overdue
        if overdue is not None and delivery.held_for(self.clock.now()) > handler.max_age:
            return self.judge.dead(delivery, handler, overdue, Reason.TOO_OLD, too_old(overdue))
        return Postponed(
            delay=stopped.delay,
            why=stopped.why,
            claimed=True,
            held=overdue is not None,
            breaker=stopped.breaker,
        )

    def _poison(self, steps: Steps, claimed: claims.Claimed) -> Outcome:
        """Return its letter; if starts go on, it is an undo that kills, and is not called again."""
        starts, last = claimed.starts, read_last_words(claimed.last_words)
        error = PoisonError(
            f"started {starts - 1} times and never finished: it kills its worker, or is cut short"
            + (f"; the last run ended by {last.error}" if last else "")
        )
        if last:
            error.__cause__ = EndOfLastRun(last.stack)
        dead = self.judge.dead(steps.delivery, steps.handler, error, Reason.POISON, POISON)
        if starts > self.most_starts + 1:
            return self.undoing.leave(steps, dead)
        return self.undoing.after(steps, dead)
