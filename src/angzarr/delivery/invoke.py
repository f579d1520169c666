"""Calling: run a handler, and say how that ended. It decides nothing about what comes before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.asked import ASKED, Asked
from angzarr.delivery.claims import Results
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.failure_policy import GIVEN_UP, Judge, cause_of
from angzarr.delivery.handlers import Handler
from angzarr.delivery.hooks import Hooks
from angzarr.delivery.interrupt import BLADE
from angzarr.delivery.outcome import Handled, Outcome, Postponed, Skipped
from angzarr.delivery.run_coroutine import run as run_coroutine
from angzarr.errors import CircuitOpenError, DeliveryError, GiveUp, Postpone, RetryLater, Skip
from angzarr.resilience.breaker import Barred
from angzarr.resilience.breaker_rules import chance_of
from angzarr.resilience.taxonomy import Classification

#: How long a handler that says Postpone without a delay waits.
POSTPONE_WAIT = timedelta(seconds=2)


class Run(NamedTuple):
    """What there is to call for a delivery: its handler, and what instead while it may not be."""

    call: Callable[[], Any]
    instead: Callable[[], Any] | None = None


class Stopped(NamedTuple):
    """Why a delivery may not call its handler, or go on in it, now; and when to ask again."""

    delay: timedelta
    why: str
    #: What its letter says once it has waited for its handler's `max_age`; None: it may for ever.
    overdue: DeliveryError | None = None
    #: The breaker that is open, if that is why.
    breaker: str | None = None


class Ended(NamedTuple):
    """How a call ended: the outcome, and the error if there was one and what kind it is."""

    outcome: Outcome | Stopped
    seen: Classification | None = None
    error: Exception | None = None


def stopped_by(breaker: str, barred: Barred, delivery: Delivery) -> Stopped:
    """Return that *breaker* stops *delivery*, which keeps its place among those who wait."""
    wait = barred.wait(chance_of(delivery.turn))
    if barred.ramping:
        return Stopped(wait, f"breaker {breaker} is ramping up", breaker=breaker)
    open_for_long = CircuitOpenError(breaker, wait)
    return Stopped(wait, f"breaker {breaker} is open", open_for_long, breaker)


def run_of(delivery: Delivery, handler: Handler, context: Context) -> Run:
    """Bind *delivery* to its handler; raises DecodeError if the event does not fit."""
    call = handler.bind(delivery, context)
    if handler.fallback is None:
        return Run(call)
    return Run(call, handler.fallback(delivery, context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Safe to use from many threads."""

    results: Results
    judge: Judge
    hooks: Hooks

    def call(self, delivery: Delivery, handler: Handler, call: Callable[[], Any]) -> Ended:
        """Run *call* for *delivery*; what ends the process or the thread is raised."""
        asked = Asked()
        running, asking = RUNNING.set(delivery), ASKED.set(asked)
        try:
            with self.hooks.attempt(delivery):
                return self._call(delivery, handler, call, asked)
        finally:
            RUNNING.reset(running)
            ASKED.reset(asking)

    def _call(  # noqa: PLR0911 - one for each end
        self, delivery: Delivery, handler: Handler, call: Callable[[], Any], asked: Asked
    ) -> Ended:
        try:
            with BLADE:
                value = call()
                if inspect.iscoroutine(value):
                    value = run_coroutine(value)
            if asked.retry is None:
                return Ended(Handled(value=value, result=self.results.write(value)))
            return self._failed(delivery, handler, asked.retry, asked)
        except handler.finished_by as finished:
            if asked.retry is None:
                return Ended(Handled(raised=finished))
            return self._failed(delivery, handler, asked.retry, asked)
        except Skip as said:
            return Ended(Skipped(reason=str(said)))
        except Postpone as said:
            wait = POSTPONE_WAIT if said.delay is None else said.delay
            why = said.reason or "asked by the handler"
            return Ended(Postponed(delay=wait, why=why, claimed=True))
        except CircuitOpenError as refused:  # by a breaker around one call inside the handler
            return Ended(_refused(refused, delivery))
        except GiveUp as said:
            reason = Reason(said.letter_reason)
            return Ended(self.judge.dead(delivery, handler, said, reason, GIVEN_UP))
        except Exception as error:  # noqa: BLE001 - every error of a handler has an outcome
            return self._failed(delivery, handler, asked.instead_of(error), asked)

    def _failed(
        self, delivery: Delivery, handler: Handler, error: Exception, asked: Asked
    ) -> Ended:
        cause = cause_of(error)
        if isinstance(cause, CircuitOpenError) and not _edited(error):
            return Ended(_refused(cause, delivery))  # to retry it would use up an attempt
        judged = self.judge.exhausted if asked.used_up else self.judge.failed
        return Ended(*judged(delivery, handler, error), cause)


def _refused(error: CircuitOpenError, delivery: Delivery) -> Stopped:
    barred = Barred(retry_after=error.retry_after, spread=error.spread, ramping=error.ramping)
    return stopped_by(error.name, barred, delivery)


def _edited(error: Exception) -> bool:
    """Tell whether the handler asked to be retried with other arguments."""
    return isinstance(error, RetryLater) and error.body is not None
