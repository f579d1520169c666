"""CompensationRunner: undoes the finished steps of a failed run, the last one first (spec D8).

It does so before the outcome is made true, and once more after a kill amid it. What an undo raises
is recorded; it never stops the others, nor changes what becomes of the delivery. `Steps` are what
one delivery finished, and what it knows of those of earlier runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from angzarr.dead_letters.metadata import STEPS_LEFT, STEPS_NOT_UNDONE, STEPS_UNDONE
from angzarr.delivery.async_runner import INTERRUPTER
from angzarr.delivery.async_runner import run as run_coroutine
from angzarr.delivery.compensation import (
    CompensationAction,
    FinishedStep,
    Logged,
    StepLog,
    StepLogKey,
    Undone,
    Undos,
    step_log_key,
    to_undo,
)
from angzarr.delivery.context import RUNNING, StepRetries
from angzarr.delivery.delivery import (
    DeadLettered,
    Delivery,
    Handled,
    Outcome,
    Postponed,
    Retried,
    Skipped,
)
from angzarr.delivery.delivery_facts import step_fact
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Handler
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.errors import ConfigurationError, DeliveryError
from angzarr.facts.fact import FactLog
from angzarr.resilience.backoff import Policy
from angzarr.runtime.cooperative import call_blocking, in_event_loop

#: How often a write is tried in place (spec D3).
POLICY = "event_handler"


class Steps:
    """Made for each delivery, so it is light: nothing is asked or written unless a step is."""

    __slots__ = ("_log", "_undos", "cause", "delivery", "handler", "known", "retries", "unwritten")

    def __init__(
        self,
        delivery: Delivery,
        handler: Handler,
        undos: Undos,
        log: StepLog | None,
        retries: Callable[[Policy | str], StepRetries],
    ) -> None:
        """*log* None: of a call that is not claimed, whose steps no other process could undo."""
        self.delivery = delivery
        self.handler = handler
        self._undos = undos
        self._log = log
        self.retries = retries
        #: Whether something may be in the log.
        self.known = False
        #: Why the log says that undoing began, if a parent process said so.
        self.cause = ""
        #: The steps of this run that the log may lack, in their order.
        self.unwritten: dict[str, FinishedStep] = {}

    @property
    def place(self) -> StepLogKey:
        """Where its log is."""
        return step_log_key(self.delivery)

    def register(self, action: CompensationAction) -> None:
        """See `Context.register_compensation`."""
        step = self._noted(action)
        _refuse_in_a_loop()
        if self._log is not None:
            add = partial(self._log.add, self.place, step)
            self._written(step, ours=self.retries(POLICY).call(add))

    async def aregister(self, action: CompensationAction) -> None:
        """See `Context.aregister_compensation`."""
        step = self._noted(action)
        if self._log is not None:
            add = partial(self._log.add, self.place, step)
            done = await self.retries(POLICY).acall(lambda: asyncio.to_thread(add))
            self._written(step, ours=done)

    def _noted(self, action: CompensationAction) -> FinishedStep:
        """The step, which is undone from here on should the log not get it."""
        step = self._undos.step(action)
        self.unwritten.pop(step.name, None)
        self.unwritten[step.name] = step
        self.known = True
        return step

    def _written(self, step: FinishedStep, *, ours: bool) -> None:
        if not ours:
            msg = f"step {step.name!r} is not kept: another delivery has taken this event over"
            raise DeliveryError(msg)
        self.unwritten.pop(step.name, None)


def _refuse_in_a_loop() -> None:
    if not in_event_loop():
        return
    msg = (
        "ctx.register_compensation would block the event loop while the step is written: use"
        " await ctx.aregister_compensation(…)"
    )
    raise ConfigurationError(msg)


_log = logging.getLogger("angzarr.delivery")

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationRunner:
    """Built once a process; safe to use from many threads."""

    undos: Undos
    log: StepLog
    failure_policy: FailurePolicy
    facts: FactLog
    retry: RetryUntilAvailable
    #: Whether a user's code may run here. In a worker's parent it may not: it keeps its clocks.
    here: bool = True
    #: The error of a hard time limit: what it leaves a child undoes before it is judged.
    time_over: type[Exception] = field(default=TimeoutError)

    def open(
        self, delivery: Delivery, handler: Handler, retries: Callable[[Policy | str], StepRetries]
    ) -> Steps:
        """The steps of *delivery*, of which nothing is known yet."""
        return Steps(delivery, handler, self.undos, self.log, retries)

    def meet(self, steps: Steps, *, left_some: bool) -> None:
        """Take note whether earlier runs *left_some* steps, as the claim store says.

        What was redelivered may have outlived its record, which would say so.
        """
        steps.known = left_some or (steps.delivery.redelivered and len(self.undos) > 0)

    def resume(self, steps: Steps) -> Exception | None:
        """Finish an undoing that was cut off, before the handler runs.

        Where it began because of a time limit that error is returned: nothing is undone yet, and
        the handler does not run.
        """
        if not steps.known:
            return None
        logged = self._read(steps)
        steps.known = bool(logged.steps)
        if not logged.steps or logged.undoing is None:
            return None
        if logged.undoing:
            steps.cause = logged.undoing
            return self._revived(logged.undoing)
        self._undo_all(steps)
        return None

    def after(self, steps: Steps, outcome: Outcome, failed: Exception | None = None) -> Outcome:
        """*outcome* once the steps are undone that it leaves behind, if it is a failure.

        *failed* is how the delivery ended outside its handler.
        """
        if not steps.known:
            return outcome
        match outcome:
            case Handled() | Skipped():
                return replace(outcome, clears=True)
            case Retried() | DeadLettered(claimed=True) if self.here:
                return _told(outcome, self._undo_all(steps))
            case Retried() | DeadLettered(claimed=True):
                return self._handed_on(steps, outcome, failed)
            case _:
                return outcome

    def leave(self, steps: Steps, outcome: Outcome) -> Outcome:
        """*outcome*; its letter, if it is one, says which steps are not undone any more."""
        if not (steps.known and isinstance(outcome, DeadLettered)):
            return outcome
        left = [step.name for step in reversed(self._read(steps).steps)]
        for name in left:
            _log.error("step_left: event %s, step %r of %s is not undone", *_names(steps, name))
        return _told(outcome, Undone(left=left))

    def _handed_on(self, steps: Steps, outcome: Outcome, failed: Exception | None) -> Outcome:
        """Let a child undo what a hard time limit left; others end here with their steps.

        Once: where the limit struck amid undoing, that is tried again before the next attempt.
        """
        if not isinstance(failed, self.time_over):
            return self.leave(steps, outcome)
        cause = _cause_of(steps.delivery, failed)
        # Its own mark it finds where settle had failed.
        amid = self._read(steps).undoing not in (None, cause)
        if not self._mark(steps, "" if amid else cause):
            return outcome
        if amid:
            return self.leave(steps, outcome)
        why = "its finished steps are undone first"
        return Postponed(delay=timedelta(0), why=why, claimed=True)

    def _read(self, steps: Steps) -> Logged:
        return self._hold(steps, "read its steps", lambda: self.log.read(steps.place))

    def _revived(self, cause: str) -> Exception:
        try:
            _, *args = json.loads(cause)
            return self.time_over(*args)
        except (ValueError, TypeError):
            return TimeoutError("the hard time limit")

    def _mark(self, steps: Steps, cause: str | None) -> Sequence[FinishedStep] | None:
        """Say whether its steps are being undone, and return them; None: they are another's."""
        ask = partial(self.log.mark_undoing, steps.place, cause)
        return self._hold(steps, "mark its steps", ask)

    def _undo_all(self, steps: Steps) -> Undone:
        """Undo every step; nothing where a successor owns the event and its log."""
        begun = self._mark(steps, steps.cause)
        ended: dict[bool, list[str]] = {True: [], False: []}
        if begun is None:
            return Undone()
        running = RUNNING.set(steps.delivery)
        try:
            for step in to_undo(begun, steps.unwritten):
                error = self._undo(steps, step)
                self._record(steps, step, error)
                ended[error is None].append(step.name)
                if error is None and not self._forgotten(steps, step):
                    break
        finally:
            RUNNING.reset(running)
        if ended[False]:  # they wait for the next failure, not for the next start
            self._mark(steps, None)
        return Undone(ended[True], ended[False])

    def _forgotten(self, steps: Steps, step: FinishedStep) -> bool:
        steps.unwritten.pop(step.name, None)
        return self._hold(steps, "forget a step", lambda: self.log.remove(steps.place, step.name))

    def _undo(self, steps: Steps, step: FinishedStep) -> Exception | None:
        """The error of the undo, None if it worked."""
        try:
            with INTERRUPTER:
                call_blocking(partial(call_undo, self.undos, step, steps.retries(POLICY)))
        except Exception as error:  # noqa: BLE001 - one failing undo does not stop the rest
            return error
        return None

    def _record(self, steps: Steps, step: FinishedStep, error: Exception | None) -> None:
        delivery, now = steps.delivery, self.retry.clock.now()
        if error is None:
            _log.info("step_undone: event %s, step %r of %s", *_names(steps, step.name))
            self.facts.append([step_fact(delivery, step.name, now)])
            return
        seen = self.failure_policy.classify(delivery, steps.handler, error)
        shown = self.failure_policy.letter_builder.shown(delivery, error, seen)
        self.facts.append([step_fact(delivery, step.name, now, error, seen, shown)])
        _log.error(
            "step_not_undone: event %s, step %r of %s stays in the log: %s: %s",
            *_names(steps, step.name), seen.code, error if shown is None else shown,
        )  # fmt: skip

    def _hold(self, steps: Steps, what: str, ask: Callable[[], _Answer]) -> _Answer:
        return self.retry.until_done(ask, what=what, delivery=steps.delivery)


def call_undo(undos: Undos, step: FinishedStep, retries: StepRetries) -> None:
    """Undo *step*, trying in place; raises what its function raises last."""
    undo = undos.get(step.undo)
    if undo is None:
        msg = (
            f"no function is registered as {step.undo!r} in this worker: bring back the @app.undo"
            " that earlier releases had, or undo the step by hand"
        )
        raise ConfigurationError(msg)
    call = partial(undo.function, json.loads(step.data))
    if undo.is_async:
        run_coroutine(retries.acall(call))
    else:
        retries.call(call)


def _cause_of(delivery: Delivery, error: Exception) -> str:
    """The text from which `_revived` makes *error* again, and which copy it struck."""
    limits = [arg for arg in error.args if isinstance(arg, int | float)]
    return json.dumps([delivery.position.hop, *limits])


def _told(outcome: Outcome, undone: Undone) -> Outcome:
    """*outcome*, whose letter says what became of the steps."""
    if not isinstance(outcome, DeadLettered):
        return outcome
    keys = (STEPS_UNDONE, STEPS_NOT_UNDONE, STEPS_LEFT)
    said = {key: json.dumps(names) for key, names in zip(keys, undone, strict=True) if names}
    letter = outcome.letter
    return replace(outcome, letter=replace(letter, metadata={**letter.metadata, **said}))


def _names(steps: Steps, step: str) -> tuple[str, str, str]:
    return steps.delivery.event.id, step, steps.handler.name
