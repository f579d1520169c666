"""BatchExecutor: decides what becomes of the deliveries of one batch, and has it made true.

Each delivery takes the steps of `DeliveryExecutor`. What these ask of a server or a handler for one
delivery is asked here for all: one call for the claims, one permit, one call of the handler, one
append of the facts and one call for the completions of those that were handled. Retries, dead
letters and all other outcomes are settled one by one. A delivery that breaks off goes back alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from angzarr.delivery.admission import FREE, Permits
from angzarr.delivery.async_runner import Interrupt
from angzarr.delivery.batch import BatchAnswer, BatchItem, errors_of
from angzarr.delivery.delivery import (
    DeadLettered,
    Delivery,
    Handled,
    Outcome,
    Postponed,
    Retried,
    Skipped,
)
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.invoke import Ended, Stopped, value_of
from angzarr.delivery.run import DeliveryRun
from angzarr.delivery.schedule import SLEPT
from angzarr.errors import GivenBack
from angzarr.resilience.taxonomy import ILLNESS

_log = logging.getLogger("angzarr.delivery")


class SettledDelivery(NamedTuple):
    """A delivery of a batch and its end: the outcome that is true, or why it goes back."""

    delivery: Delivery
    outcome: Outcome | None = None
    given_back: GivenBack | None = None

    def result(self) -> Outcome | None:
        """The outcome, None if a successor owns the event; raises GivenBack."""
        if self.given_back is not None:
            raise self.given_back
        return self.outcome


@dataclass(slots=True)
class _Entry:
    """One delivery of a batch on its way; it is open until it has an outcome or goes back."""

    run: DeliveryRun
    outcome: Outcome | None = None
    given_back: GivenBack | None = None
    #: Whether its outcome is true, or belongs to a successor.
    settled: bool = False
    item: BatchItem = field(init=False)

    @property
    def is_open(self) -> bool:
        """True while it has no end."""
        return self.outcome is None and self.given_back is None


@dataclass(frozen=True, slots=True)
class BatchExecutor:
    """Takes batches by the steps of *executor*. Safe to use from many threads.

    *within* opens what a delivery needs around it that is run or settled alone.
    """

    executor: DeliveryExecutor
    within: Callable[[Delivery], AbstractContextManager[object]] = lambda _delivery: nullcontext()

    def take(self, deliveries: Sequence[Delivery]) -> list[SettledDelivery]:
        """The end of each of *deliveries* of one batch handler, in order.

        Raises only what ends the process or the thread; then the claims are still held.
        """
        if self.executor.closed():
            return [self._alone(delivery) for delivery in deliveries]
        entries = [_Entry(DeliveryRun(delivery, None)) for delivery in self._waited(deliveries)]
        try:
            self._decide(entries)
        except BaseException:
            for entry in _open(entries):
                self.executor.forgo(entry.run)
            raise
        self._settle(entries)
        return [SettledDelivery(one.run.delivery, one.outcome, one.given_back) for one in entries]

    def _waited(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Sleep the longest of what is left of their waits, once for all."""
        rest = max(delivery.rest_ms for delivery in deliveries)
        if not rest:
            return deliveries
        self.executor.clock.sleep(min(timedelta(milliseconds=rest), SLEPT))
        return [replace(delivery, rest_ms=0) for delivery in deliveries]

    def _alone(self, delivery: Delivery) -> SettledDelivery:
        try:
            return SettledDelivery(delivery, self.executor.take(delivery))
        except GivenBack as back:
            return SettledDelivery(delivery, given_back=back)

    def _decide(self, entries: Sequence[_Entry]) -> None:
        executor = self.executor
        for entry in entries:
            self._advance(entry, executor.read)
        self._claim(_open(entries))
        for entry in _open(entries):
            self._advance(entry, executor.hold)
        together: list[_Entry] = []
        for entry in _open(entries):
            call = entry.run.call.call
            if entry.run.alone or not isinstance(call, BatchItem) or call.is_over_budget:
                self._advance(entry, self._run_alone)  # it may kill what it runs beside
            else:
                entry.item = call
                together.append(entry)
        self._run(together)

    def _advance(self, entry: _Entry, step: Callable[[DeliveryRun], Outcome | None]) -> None:
        """Take *step*; an outcome is concluded, and what breaks off goes back."""
        executor, run = self.executor, entry.run
        try:
            outcome = step(run)
            if outcome is not None:
                entry.outcome = executor.judged(run, executor.conclude(run, outcome))
        except (Interrupt, Exception) as error:  # noqa: BLE001 - the others go on
            executor.forgo(run)
            entry.given_back = executor.broken_off(run.delivery, error)

    def _claim(self, entries: Sequence[_Entry]) -> None:
        """Claim all that was not claimed with its fetch; what fails is asked again one by one."""
        asking = [entry.run for entry in entries if entry.run.claim is not None]
        if len(asking) <= 1:
            return
        try:
            answers = self.executor.claimer.ask_all([run.delivery for run in asking])
        except Exception as error:  # noqa: BLE001 - each asks alone, and finds out what to do
            _log.debug("batch_not_claimed: %r", error)
            return
        for run, answer in zip(asking, answers, strict=True):
            run.answer = answer

    def _run(self, entries: Sequence[_Entry]) -> None:
        """Let them in by one permit, call the handler once, and conclude each by its answer."""
        gate = self.executor.admission.switch_gate
        for entry in entries:
            halted = gate.halt(entry.run.delivery, entry.run.handler)
            if halted is not None:
                self._stop(entry, halted)
        permits = self._admit(_open(entries))
        ready = _open(entries)
        if permits is None or not ready:
            return
        began = self.executor.clock.now()
        try:
            with self.executor.hooks.batch([entry.run.delivery for entry in ready]):
                answers = self._call(ready)
        except BaseException as error:
            self.executor.admission.forgo(permits)  # cut short: it says nothing
            if not isinstance(error, Interrupt):
                raise
            for entry in ready:
                self.executor.forgo(entry.run)
                entry.given_back = self.executor.broken_off(entry.run.delivery, error)
            return
        self._answer(ready, answers, permits, self.executor.clock.now() - began)

    def _answer(
        self,
        entries: Sequence[_Entry],
        answers: Sequence[BatchAnswer],
        permits: Permits,
        took: timedelta,
    ) -> None:
        """Report the call to what let it through, and conclude each of *entries* by its answer."""
        invoker = self.executor.invoker
        ends = [
            invoker.answered(entry.run.delivery, entry.run.handler, answer)
            for entry, answer in zip(entries, answers, strict=True)
        ]
        if permits is not FREE:
            self.executor.admission.leave(permits, entries[0].run.handler, _worst(ends), took)
        for entry, answer, ended in zip(entries, answers, ends, strict=True):
            self._advance(entry, partial(self._end, answer, ended))

    def _admit(self, entries: list[_Entry]) -> Permits | None:
        """The permit of the first of *entries* that gets one, for all behind it; None: of none.

        Those that get none are stopped.
        """
        for entry in entries:
            answer: list[Permits] = []

            def ask(run: DeliveryRun, answer: list[Permits] = answer) -> Outcome | None:
                found = self.executor.admission.enter(run.delivery, run.handler)
                if isinstance(found, Permits):
                    answer.append(found)
                    return None
                if isinstance(found, Stopped):
                    return self.executor.invoker.stopped(run.delivery, run.handler, run.call, found)
                return found

            self._advance(entry, ask)
            if answer:
                return answer[0]
        return None

    def _stop(self, entry: _Entry, halted: Stopped | Outcome) -> None:
        def end(run: DeliveryRun) -> Outcome:
            if isinstance(halted, Stopped):
                return self.executor.invoker.stopped(run.delivery, run.handler, run.call, halted)
            return halted

        self._advance(entry, end)

    @staticmethod
    def _call(entries: Sequence[_Entry]) -> list[BatchAnswer]:
        """The answers of the handler's one call for *entries*."""
        items = [entry.item for entry in entries]
        try:
            errors = errors_of(value_of(lambda: items[0].handler(items)), len(items))
        except Exception as error:  # noqa: BLE001 - it counts for each event as its own
            return [BatchAnswer(error, error.__traceback__, for_all=len(items) > 1)] * len(items)
        return [BatchAnswer(error, getattr(error, "__traceback__", None)) for error in errors]

    def _end(self, answer: BatchAnswer, ended: Ended, run: DeliveryRun) -> Outcome:
        """The outcome of one event. What is raised for all is the end of none: it runs alone."""
        outcome = ended.outcome
        if isinstance(outcome, Stopped):
            return self.executor.invoker.stopped(run.delivery, run.handler, run.call, outcome)
        is_end = isinstance(outcome, DeadLettered | Skipped)
        if is_end and answer.for_all and run.handler.idempotent:
            return self._run_alone(run)
        return outcome

    def _run_alone(self, run: DeliveryRun) -> Outcome:
        with self.within(run.delivery):
            return self.executor.run_alone(run)

    def _settle(self, entries: Sequence[_Entry]) -> None:
        """Make the outcomes true: plain successes together, all else one by one."""
        self._settle_handled(entries)
        executor = self.executor
        again = [entry for entry in entries if _is_slept(entry.outcome)]
        for entry in again if len(again) > 1 else ():
            entry.outcome = _put_off(entry.outcome)
        for entry in entries:
            outcome, delivery = entry.outcome, entry.run.delivery
            if outcome is None:
                continue
            if not entry.settled:
                try:
                    with self.within(delivery):
                        entry.outcome = executor.settle(delivery, outcome)
                except (Interrupt, Exception) as error:  # noqa: BLE001 - the others go on
                    entry.outcome, entry.given_back = None, executor.broken_off(delivery, error)
            if entry.outcome is not None:
                executor.hooks.settled(delivery, entry.outcome)

    def _settle_handled(self, entries: Sequence[_Entry]) -> None:
        """Settle plain successes in one go; if that fails they are settled one by one."""
        plain = [
            (entry, entry.outcome)
            for entry in entries
            if isinstance(entry.outcome, Handled)
            and entry.outcome.raised is None
            and not entry.outcome.clears
        ]
        if len(plain) <= 1:
            return
        handled = [(entry.run.delivery, outcome) for entry, outcome in plain]
        try:
            ours = self.executor.settler.settle_handled(handled)
        except Exception as error:  # noqa: BLE001 - every step of it may be repeated
            _log.debug("batch_not_settled: %r", error)
            return
        for (entry, outcome), still_ours in zip(plain, ours, strict=True):
            entry.settled, entry.outcome = True, outcome if still_ours else None


def _is_slept(outcome: Outcome | None) -> bool:
    """True if settle would sleep what *outcome* waits for, in the slot of its batch."""
    return isinstance(outcome, Postponed | Retried) and timedelta(0) < outcome.delay <= SLEPT


def _put_off(outcome: Outcome | None) -> Outcome | None:
    """*outcome* with a delay that is not slept: many short ones would be a long one."""
    if isinstance(outcome, Postponed | Retried):
        return replace(outcome, delay=outcome.delay + SLEPT)
    return outcome


def _open(entries: Sequence[_Entry]) -> list[_Entry]:
    return [entry for entry in entries if entry.is_open]


def _worst(ends: Sequence[Ended]) -> Ended:
    """What the one call says to its dependencies: it was ill if it was so for any event."""
    ill = (end for end in ends if end.seen is not None and end.seen.category in ILLNESS)
    return next(ill, ends[0])
