"""DeliveryExecutor: decides what becomes of one delivery, and has it made true.

`decide` lists the steps in their order; each is a short function over one `DeliveryRun`. The first
that returns an outcome ends the list. Deciding publishes nothing; it touches the claim, the event's
lane, the flow control, the handler and its undo functions. `settle` makes it true (spec D6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from angzarr.clock import Clock
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.admission import FREE, Admission
from angzarr.delivery.async_runner import Interrupt
from angzarr.delivery.bodies import BodyLoader
from angzarr.delivery.claims import IN_PROGRESS_WAIT, Claimer, LastStarts, Results
from angzarr.delivery.compensation_runner import CompensationRunner
from angzarr.delivery.completions import LeftCompletion
from angzarr.delivery.configuration import PinnedConfiguration
from angzarr.delivery.context import Context, ContextTools
from angzarr.delivery.delivery import (
    Delivery,
    Handled,
    Outcome,
    Postponed,
    Skipped,
)
from angzarr.delivery.edited_copies import EditedCopies
from angzarr.delivery.failure_policy import NO_HANDLER, POISON, UNREADABLE, FailurePolicy
from angzarr.delivery.handlers import Handlers
from angzarr.delivery.invoke import HandlerInvoker, Hooks, Stopped, handler_call
from angzarr.delivery.letter_builder import write_last_words
from angzarr.delivery.ordering import Ordering, skipped_by_person
from angzarr.delivery.poison_wave import PoisonWaveBreaker
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.delivery.run import DeliveryRun
from angzarr.delivery.schedule import SLEPT
from angzarr.delivery.settle import Settler
from angzarr.delivery.step_retry import InPlace
from angzarr.delivery.unsettled import UnsettledOutcomes, may_become_letter
from angzarr.errors import DecodeError, DeliveryError, GivenBack, LetterTooLarge
from angzarr.events.headers import skip_of
from angzarr.resilience import idempotency as claims
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.delivery")

#: Starts that were not settled before the event counts as poison (spec D4).
MOST_STARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryExecutor:
    """Built once a process; safe to use from many threads."""

    handlers: Handlers
    claimer: Claimer
    ordering: Ordering
    bodies: BodyLoader
    admission: Admission
    invoker: HandlerInvoker
    results: Results
    failure_policy: FailurePolicy
    clock: Clock
    context_tools: ContextTools
    in_place: InPlace
    configuration: PinnedConfiguration
    compensation_runner: CompensationRunner
    last_starts: LastStarts
    unsettled: UnsettledOutcomes
    edited_copies: EditedCopies
    settler: Settler
    retry: RetryUntilAvailable
    hooks: Hooks
    most_starts: int = MOST_STARTS
    #: The guard against poison waves; None where only what cannot be handled is settled.
    poison_wave_breaker: PoisonWaveBreaker | None = None
    #: True once the worker begins nothing any more.
    closed: Callable[[], bool] = lambda: False

    def take(self, delivery: Delivery, failed: Exception | None = None) -> Outcome | None:
        """The outcome, once it is true: the message may be acknowledged.

        *failed* is why no handler is to run; it counts as the handler's error. None is returned if
        a successor owns the event: acknowledge and report nothing.
        Raises only GivenBack, if the message must not be acknowledged: the worker stops before the
        handler began or while a server is away, or an unforeseen error broke the steps off.
        """
        if failed is None and self.closed():
            if delivery.claimed_with_fetch:  # else it has no claim yet
                self.claimer.release(delivery, counted=False)
            raise GivenBack("the worker stops, and had not begun with it")
        try:
            outcome = self.settle(delivery, self.decide(delivery, failed))
        except (Interrupt, Exception) as error:
            if (back := self.broken_off(delivery, error, failed)) is error:
                raise
            raise back from error
        if outcome is not None:
            self.hooks.settled(delivery, outcome)
        return outcome

    def broken_off(
        self, delivery: Delivery, error: BaseException, failed: Exception | None = None
    ) -> GivenBack:
        """Release the claim of a delivery whose steps *error* broke off; why it goes back."""
        if isinstance(error, GivenBack | Interrupt):
            self.claimer.release(delivery, counted=False)
            if isinstance(error, GivenBack):
                return error
            _log.warning(
                "cut_short: event %s, at the end of its worker's grace or of its own time, or since"
                " it was revoked", delivery.event.id,
            )  # fmt: skip
            return GivenBack("its run was cut short")
        # A time limit between two steps, or a bug. The start stays counted, so that what breaks
        # every time ends as a letter and not as a loop; but not if the process lacks memory,
        # threads or files, of which the event knows nothing, nor where no handler was to run: its
        # letter would say poison and not what ended it.
        _log.error("given_back: event %s could not be settled", delivery.event.id, exc_info=error)
        self.claimer.release(delivery, counted=failed is None and not is_machine_fault(error))
        return GivenBack(f"the delivery broke off: {error!r}")

    def decide(self, delivery: Delivery, failed: Exception | None = None) -> Outcome:
        """The outcome of the steps; raises GivenBack if the worker stops first."""
        run = DeliveryRun(delivery, failed)
        try:
            outcome = self.conclude(run, self.read(run) or self.hold(run) or self.run_alone(run))
        except BaseException:
            self.forgo(run)
            raise
        return self.judged(run, outcome)

    def read(self, run: DeliveryRun) -> Outcome | None:
        """Take the steps before the claim; None: it is to be claimed."""
        early = self._ask_wave(run) or self._sleep_rest_of_wait(run)
        return early or self._find_handler(run) or self._read(run)

    def hold(self, run: DeliveryRun) -> Outcome | None:
        """Take the steps from the claim on; None: its handler may be asked for."""
        return (
            self._claim(run)
            or self._take_turn(run)
            or self._pass_over(run)
            or self._check_claim(run)
            or self._run_last_start_alone(run)
            or self._refuse_poison(run)
            or self._end_failed(run)
            or self.bodies.load(run, self._bind)
            or self._finish_undo(run)
        )

    def run_alone(self, run: DeliveryRun) -> Outcome:
        """Let it in, and call its handler for it alone."""
        return self._admit(run) or self._call(run)

    def conclude(self, run: DeliveryRun, outcome: Outcome) -> Outcome:
        """Undo what a failure leaves behind, and let go of what the run alone may have."""
        outcome = self._undo(run, outcome)
        self._leave(run)
        return outcome

    def judged(self, run: DeliveryRun, outcome: Outcome) -> Outcome:
        """*outcome*, or a postponement where it would be one more letter of a poison wave."""
        breaker, permit = self.poison_wave_breaker, run.wave_permit
        return outcome if breaker is None else breaker.judged(run.delivery, outcome, permit)

    def forgo(self, run: DeliveryRun) -> None:
        """Let go of all that a run has that is not decided."""
        if self.poison_wave_breaker is not None:
            self.poison_wave_breaker.forgo(run.wave_permit)
        self._leave(run)

    def _ask_wave(self, run: DeliveryRun) -> Outcome | None:
        """A domain of which nearly all becomes letters is held back (ADR 0015)."""
        if self.poison_wave_breaker is not None:
            entered = self.poison_wave_breaker.enter(run.delivery)
            if isinstance(entered, Postponed):
                return entered
            run.wave_permit = entered
        return None

    def _sleep_rest_of_wait(self, run: DeliveryRun) -> Outcome | None:
        """Sleep what is left of a wait whose whole seconds have passed."""
        if run.failed is None and run.delivery.rest_ms:
            self.clock.sleep(min(timedelta(milliseconds=run.delivery.rest_ms), SLEPT))
        return None

    def _find_handler(self, run: DeliveryRun) -> Outcome | None:
        handler = self.handlers.get(run.delivery.handler)
        if handler is None:
            missing = DecodeError(f"no handler is registered as {run.delivery.handler!r}")
            return self.failure_policy.unreadable(run.delivery, None, missing, NO_HANDLER)
        run.handler = handler
        return None

    def _read(self, run: DeliveryRun) -> Outcome | None:
        """Find its lane, and bind the event to the handler, unless its body is still to come."""
        delivery, handler = run.delivery, run.handler
        retries = partial(self.in_place.retrying, delivery, handler, self.clock.now())
        run.steps = self.compensation_runner.open(delivery, handler, retries)
        try:
            run.turn = self.ordering.turn(delivery, handler)
            run.skip = skip_of(delivery.message.headers)
            if run.skip is None and run.failed is None and not delivery.is_elsewhere:
                self._bind(run)
            # A claim made with the fetch has read the body and found that it can be compared.
            run.claim = delivery.claim if delivery.answer is None else None
        except Exception as error:  # a DecodeError, or what a model's own code raises
            if is_machine_fault(error):
                raise  # it says nothing of the message, which goes back
            return self.failure_policy.unreadable(delivery, handler, error, UNREADABLE)
        return None

    def _bind(self, run: DeliveryRun) -> None:
        """Bind the event to its handler; raises DecodeError."""
        delivery, handler, steps = run.delivery, run.handler, run.steps
        assert steps is not None  # noqa: S101 - they are opened before
        context = Context(
            delivery=delivery,
            make_policy=partial(self.failure_policy.policy, delivery, handler),
            make_log=self.context_tools.make_log,
            make_breaker=partial(self.context_tools.make_breaker, handler),
            costs=self.context_tools.costs,
            make_retries=steps.retries,
            steps=steps,
            configuration=self.configuration.of(delivery),
            make_final=partial(self.failure_policy.is_final, delivery, handler),
            turn=run.turn,
        )
        run.call = handler_call(delivery, handler, context)

    def _claim(self, run: DeliveryRun) -> Outcome | None:
        delivery, turn = run.delivery, run.turn
        answer = delivery.answer if run.claim is None else run.answer
        if run.claim is not None and answer is None:
            answer = self.claimer.ask(delivery, run.claim)
        if isinstance(answer, claims.AlreadyCompleted) and self.ordering.set_back(turn, delivery):
            answer = self.claimer.ask(delivery, replace(delivery.claim, anew=True))
        if isinstance(answer, claims.Claimed):
            run.claimed = answer
            return None
        found = self.results.outcome_of(answer)
        return found or self.failure_policy.conflict(delivery, run.handler)

    def _take_turn(self, run: DeliveryRun) -> Outcome | None:
        """Ordered handlers: an event that comes early waits in its lane."""
        turn = run.turn
        if turn is None:
            return None
        runs = run.failed is None and run.skip is None
        outcome = self.ordering.enter(turn, run.delivery, run.handler, runs=runs)
        may_wait = run.claimed.steps or run.delivery.redelivered or run.delivery.is_elsewhere
        asks_store = may_wait or self._is_last_start(run)
        if runs and outcome is None and (asks_store or not self.claimer.is_sure(run.claimed)):
            turn.leave()  # ends its transaction: a later step may wait; the run looks again
        return outcome

    def _is_last_start(self, run: DeliveryRun) -> bool:
        """True if it was started and not settled so often that one more start is the last."""
        return run.claimed.starts + run.delivery.claimed_with_fetch >= self.most_starts

    @staticmethod
    def _pass_over(run: DeliveryRun) -> Outcome | None:
        """A person skips it: its lane goes on, and no handler runs."""
        return None if run.skip is None else Skipped(reason=skipped_by_person(run.skip))

    def _check_claim(self, run: DeliveryRun) -> Outcome | None:
        """Its lease may have ended since; and earlier runs may have left steps, or pins."""
        claimed, delivery = run.claimed, run.delivery
        if run.failed is None and not self.claimer.holds(delivery, claimed):
            return Postponed(delay=IN_PROGRESS_WAIT, why="taken over", claimed=False)
        if run.steps and (claimed.steps or delivery.redelivered):
            self.compensation_runner.meet(run.steps, left_some=claimed.steps)
        self.configuration.recall(delivery, began=run.failed is not None or claimed.starts > 1)
        return None

    def _run_last_start_alone(self, run: DeliveryRun) -> Outcome | None:
        """The last start before poison, or its undo, runs alone: what it kills blames no other."""
        if run.failed is not None or not self._is_last_start(run):
            return None
        if run.claimed.starts > self.most_starts and not (run.steps and run.steps.known):
            return None  # poison without steps to undo: nothing runs any more
        run.alone = (postponed := self.last_starts.begin(run.delivery)) is None
        return postponed

    def _refuse_poison(self, run: DeliveryRun) -> Outcome | None:
        """Started too often and never settled: it kills its worker."""
        if run.claimed.starts <= self.most_starts:
            return None
        run.poison = True
        return self.failure_policy.poisoned(run.delivery, run.handler, run.claimed)

    def _end_failed(self, run: DeliveryRun) -> Outcome | None:
        """It ended before, or outside, its handler (D7)."""
        if run.failed is None:
            return None
        return self.failure_policy.ended(run.delivery, run.handler, run.failed)

    def _finish_undo(self, run: DeliveryRun) -> Outcome | None:
        """Finish a compensation that was interrupted, before all else."""
        if not (run.steps and run.steps.known):
            return None
        if (failed := self.compensation_runner.resume(run.steps)) is None:
            return None
        return self.failure_policy.ended(run.delivery, run.handler, failed)

    def _admit(self, run: DeliveryRun) -> Outcome | None:
        """Switches, breakers, the retry budget and limits let it call its handler now."""
        permits = self.admission.enter(run.delivery, run.handler)
        if isinstance(permits, Stopped):
            return self.invoker.stopped(run.delivery, run.handler, run.call, permits)
        if isinstance(permits, Skipped):
            return permits
        run.permits = permits
        return None

    def _call(self, run: DeliveryRun) -> Outcome:
        began = self.clock.now()
        try:
            ended = self.invoker.call(run.delivery, run.handler, run.call.call)
        except BaseException:
            self.admission.forgo(run.permits)  # cut short: it says nothing
            raise
        if run.permits is not FREE:
            self.admission.leave(run.permits, run.handler, ended, self.clock.now() - began)
        if isinstance(ended.outcome, Stopped):
            return self.invoker.stopped(run.delivery, run.handler, run.call, ended.outcome)
        return ended.outcome

    def _undo(self, run: DeliveryRun, outcome: Outcome) -> Outcome:
        """Undo the finished steps that a failure leaves behind."""
        if run.turn is not None and isinstance(outcome, Handled):
            outcome = replace(outcome, moved=run.turn.moved)
        if not (run.steps and run.steps.known):
            return outcome
        if run.poison and run.claimed.starts > self.most_starts + 1:
            return self.compensation_runner.leave(run.steps, outcome)  # an undo function kills it
        failed = None if run.poison else run.failed
        return self.compensation_runner.after(run.steps, outcome, failed)

    def _leave(self, run: DeliveryRun) -> None:
        """Let go of what the run alone may have; safe to repeat."""
        if run.alone:
            run.alone = False
            self.last_starts.end()
        if run.turn is not None:
            run.turn.leave()

    def settle(self, delivery: Delivery, outcome: Outcome) -> Outcome | None:
        """The outcome that was made true; None if a successor owns the event."""
        try:
            outcome = self.edited_copies.made(delivery, outcome)
            ours = self._settle_once(delivery, outcome)
        except LetterTooLarge as error:
            outcome = self.unsettled.too_large(delivery, outcome, error)
            ours = self._settle_once(delivery, outcome)
        except DeliveryError as error:  # what follows this event can never be published
            return self.settle(delivery, self.unsettled.no_follower(delivery, outcome, error))
        except GivenBack:
            raise
        except Exception as error:
            # No further try will make it true. A letter may be: it runs no handler once more.
            if not may_become_letter(outcome) or is_machine_fault(error):
                raise
            return self.settle(delivery, self.unsettled.unsettled(delivery, outcome, error))
        return outcome if ours else None

    def _settle_once(self, delivery: Delivery, outcome: Outcome) -> bool:
        step = partial(self.settler.settle, delivery, outcome)
        blocks = not self.settler.is_local(delivery, outcome)
        return self.retry.until_done(step, what="settle it", delivery=delivery, blocks=blocks)

    def complete(self, delivery: Delivery, left: LeftCompletion) -> None:
        """End the claim of a success that no acknowledgement ends; raises as `take`."""
        step = partial(self.settler.complete, delivery, left)
        self.retry.until_done(step, what="complete it", delivery=delivery)

    def close(self) -> None:
        """Write what is held back and close connections."""
        self.settler.close()
        self.context_tools.costs.close()

    def release_dying(self, delivery: Delivery, error: BaseException) -> None:
        """End the claim of a run that *error* ends together with its process, or with its thread.

        Its start counts. If none settles, the letter says what ended the last of them.
        """
        builder = self.failure_policy.letter_builder
        letter = builder.letter(delivery, None, error, Reason.POISON, POISON)
        self.claimer.release(delivery, counted=True, last_words=write_last_words(letter))
