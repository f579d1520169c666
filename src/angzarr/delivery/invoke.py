"""HandlerInvoker: runs a handler and says how that ended; `run_eagerly` does so without a worker.

Hooks watch each attempt and each settled delivery. They decide nothing and fail nothing.

Celery's `self.retry` may be called and not be the end of a run: with ``throw=False`` it returns,
and where no retry is left it raises an error that the task may catch. `RetryRequest` keeps what a
run asked for.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from angzarr.configuration.reader import ConfigurationReader
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.async_runner import INTERRUPTER
from angzarr.delivery.async_runner import run as run_coroutine
from angzarr.delivery.batch import BatchItem
from angzarr.delivery.claims import Results
from angzarr.delivery.compensation import Undos, to_undo
from angzarr.delivery.compensation_runner import POLICY, Steps, call_undo
from angzarr.delivery.configuration import DeliveryConfiguration
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import Delivery, Handled, Outcome, Postponed, Skipped, read
from angzarr.delivery.failure_policy import GIVEN_UP, FailurePolicy, cause_of, too_old
from angzarr.delivery.handlers import Handler
from angzarr.delivery.step_retry import InPlace
from angzarr.errors import (
    CircuitOpenError,
    DeliveryError,
    Directive,
    GiveUp,
    Postpone,
    RetryLater,
    Skip,
)
from angzarr.events.event import Message
from angzarr.resilience.breaker import Barred
from angzarr.resilience.breaker_guard import BreakerGuard
from angzarr.resilience.breaker_rules import chance_of
from angzarr.resilience.taxonomy import Classification
from angzarr.runtime.cooperative import call_blocking, cooperative_run


@dataclass(slots=True)
class RetryRequest:
    """Belongs to one run; only that run's own code writes it."""

    #: The retry that the run wants once it has ended, however it ends; the last one counts. One
    #: that is raised, too: code that catches it has asked all the same.
    retry: RetryLater | None = None
    #: Whether the run learned that it has no retry left: then none of its errors is retried.
    used_up: bool = False

    def instead_of(self, error: Exception) -> Exception:
        """The error that counts for *error*, which ended the run.

        A retry that was asked for before wins, with *error* as its cause. What the run says
        outright by a `Directive` came later, and wins over that.
        """
        if self.retry is None or isinstance(error, Directive):
            return error
        self.retry.cause = error
        return self.retry


#: What the run that goes on here has asked for; None: nothing runs here.
RETRY_REQUEST: ContextVar[RetryRequest | None] = ContextVar("angzarr_asked", default=None)


_log = logging.getLogger("angzarr.hooks")


class Hook(Protocol):
    """Something that watches. What it raises is logged and goes no further."""

    def attempt(self, delivery: Delivery, /) -> AbstractContextManager[object]:
        """A context that is open while the handler runs."""

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """See a delivery whose outcome is true."""


@runtime_checkable
class BatchHook(Protocol):
    """A `Hook` that also watches the calls of batch handlers."""

    def batch(self, deliveries: Sequence[Delivery], /) -> AbstractContextManager[object]:
        """A context that is open while a handler runs for all of *deliveries*."""


class Hooks:
    """All hooks as one, each fenced off from the delivery."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def attempt(self, delivery: Delivery) -> AbstractContextManager[object]:
        """A context around the handler, made of every hook's own."""
        return _Watched(self._hooks, "attempt", delivery)

    def batch(self, deliveries: Sequence[Delivery]) -> AbstractContextManager[object]:
        """A context around the call of a batch handler, of the hooks that watch those."""
        watching = [hook for hook in self._hooks if isinstance(hook, BatchHook)]
        return _Watched(watching, "batch", deliveries)

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Show a settled delivery to every hook."""
        for hook in self._hooks:
            try:
                hook.settled(delivery, outcome)
            except Exception:  # noqa: BLE001 - a hook must not fail a delivery
                _log.exception("hook_failed")


class _Watched:
    """The open contexts of one call: an ExitStack whose members cannot break it.

    *way* is the method by which each hook makes its context around *what* runs.
    """

    __slots__ = ("_hooks", "_open", "_way", "_what")

    def __init__(self, hooks: Sequence[object], way: str, what: object) -> None:
        self._hooks, self._way, self._what = hooks, way, what
        self._open: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        for hook in self._hooks:
            try:
                context = getattr(hook, self._way)(self._what)
                if type(context) is nullcontext:
                    continue
                context.__enter__()
                self._open.append(context)
            except Exception:  # noqa: BLE001 - a hook must not fail a delivery
                _log.exception("hook_failed")

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._open):
            try:
                context.__exit__(None, None, None)
            except Exception:  # noqa: BLE001 - a hook must not fail a delivery
                _log.exception("hook_failed")


#: How long a handler that says Postpone without a delay waits.
POSTPONE_WAIT = timedelta(seconds=2)


class HandlerCall(NamedTuple):
    """The calls of a delivery: its handler, and the replacement while it may not be called."""

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
    """The stop of *delivery* by *breaker*; it keeps its place in the line."""
    wait = barred.wait(chance_of(delivery.turn))
    if barred.ramping:
        return Stopped(wait, f"breaker {breaker} is ramping up", breaker=breaker)
    open_for_long = CircuitOpenError(breaker, wait)
    return Stopped(wait, f"breaker {breaker} is open", open_for_long, breaker)


def handler_call(delivery: Delivery, handler: Handler, context: Context) -> HandlerCall:
    """Bind *delivery* to its handler; raises DecodeError if the event does not fit."""
    call = handler.bind(delivery, context)
    if context.costs.is_bounded and not isinstance(call, BatchItem):
        call = partial(_within_budget, context, call)
    if handler.fallback is None:
        return HandlerCall(call)
    return HandlerCall(call, handler.fallback(delivery, context))


def _within_budget(context: Context, call: Callable[[], Any]) -> Any:
    """The value of *call*, unless what its delivery may spend is spent."""
    call_blocking(partial(context.costs.check, context.delivery))
    return call()


def value_of(call: Callable[[], Any]) -> Any:
    """The value of a handler's *call*, which may be interrupted; a coroutine is run to its end."""
    if cooperative_run() is not None:  # its coroutine alone is interrupted, by whoever cuts the run
        value = call()
        return run_coroutine(value) if inspect.iscoroutine(value) else value
    with INTERRUPTER:
        value = call()
        return run_coroutine(value) if inspect.iscoroutine(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerInvoker:
    """Safe to use from many threads."""

    results: Results
    failure_policy: FailurePolicy
    hooks: Hooks

    def call(self, delivery: Delivery, handler: Handler, call: Callable[[], Any]) -> Ended:
        """Run *call* for *delivery*; what ends the process or the thread is raised."""
        asked = RetryRequest()
        running, asking = RUNNING.set(delivery), RETRY_REQUEST.set(asked)
        try:
            with self.hooks.attempt(delivery):
                return self._call(delivery, handler, partial(value_of, call), asked)
        finally:
            RUNNING.reset(running)
            RETRY_REQUEST.reset(asking)

    def answered(self, delivery: Delivery, handler: Handler, answer: Callable[[], Any]) -> Ended:
        """The end of a run whose *answer* for *delivery* is known: it returns or raises that."""
        return self._call(delivery, handler, answer, RetryRequest())

    def stopped(
        self, delivery: Delivery, handler: Handler, call: HandlerCall, stopped: Stopped
    ) -> Outcome:
        """The outcome of a delivery that may not call its handler now; no attempt is used."""
        if stopped.breaker is not None and call.instead is not None:
            ended = self.call(delivery, handler, partial(call_blocking, call.instead))
            if not isinstance(ended.outcome, Stopped):
                return ended.outcome
        overdue = stopped.overdue
        if (
            overdue is not None
            and delivery.held_for(self.failure_policy.clock.now()) > handler.max_age
        ):
            seen = too_old(overdue)
            return self.failure_policy.dead(delivery, handler, overdue, Reason.TOO_OLD, seen)
        return Postponed(
            delay=stopped.delay,
            why=stopped.why,
            claimed=True,
            held=overdue is not None,
            breaker=stopped.breaker,
        )

    def _call(  # noqa: PLR0911 - one for each end
        self, delivery: Delivery, handler: Handler, call: Callable[[], Any], asked: RetryRequest
    ) -> Ended:
        try:
            value = call()
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
            return Ended(self.failure_policy.dead(delivery, handler, said, reason, GIVEN_UP))
        except Exception as error:  # noqa: BLE001 - every error of a handler has an outcome
            return self._failed(delivery, handler, asked.instead_of(error), asked)

    def _failed(
        self, delivery: Delivery, handler: Handler, error: Exception, asked: RetryRequest
    ) -> Ended:
        cause = cause_of(error)
        if isinstance(cause, CircuitOpenError) and not _edited(error):
            return Ended(_refused(cause, delivery))  # to retry it would use up an attempt
        judged = self.failure_policy.exhausted if asked.used_up else self.failure_policy.failed
        return Ended(*judged(delivery, handler, error), cause)


def _refused(error: CircuitOpenError, delivery: Delivery) -> Stopped:
    barred = Barred(retry_after=error.retry_after, spread=error.spread, ramping=error.ramping)
    return stopped_by(error.name, barred, delivery)


def _edited(error: Exception) -> bool:
    """True if the handler asked to be retried with other arguments."""
    return isinstance(error, RetryLater) and error.body is not None


_delivery_log = logging.getLogger("angzarr.delivery")


def run_eagerly(  # noqa: PLR0917 - what a delivery has and a call has not
    handler: Handler,
    in_place: InPlace,
    undos: Undos,
    headers: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    make_log: Callable[[Mapping[str, Any]], Any],
    make_breaker: Callable[[str], BreakerGuard],
    reader: Callable[[], ConfigurationReader],
) -> Any:
    """The handler's value: decoded as in a worker, but neither claimed nor retried.

    What the handler itself tries again (``ctx.retry``) it does here, too, and its finished steps
    are undone where it raises, as long as this process lives.
    """
    message = Message(
        body=b"",
        content_type="application/json",
        content_encoding="utf-8",
        headers={**headers, "task": handler.name},
        queue="",
    )
    delivery = read(message, args=args, kwargs=kwargs, token="", owner="")
    failure_policy = in_place.failure_policy
    retries = partial(in_place.retrying, delivery, handler, failure_policy.clock.now())
    steps = Steps(delivery, handler, undos, None, retries)
    context = Context(
        delivery=delivery,
        make_policy=partial(failure_policy.policy, delivery, handler),
        make_log=make_log,
        make_breaker=make_breaker,
        make_retries=retries,
        steps=steps,
        configuration=DeliveryConfiguration(delivery, reader, None),
    )
    running = RUNNING.set(delivery)
    try:
        value = handler.bind(delivery, context)()
        return run_coroutine(value) if inspect.iscoroutine(value) else value
    except Exception:
        _undo(steps, undos)
        raise
    finally:
        RUNNING.reset(running)


def _undo(steps: Steps, undos: Undos) -> None:
    for step in to_undo((), steps.unwritten):
        try:
            call_undo(undos, step, steps.retries(POLICY))
        except Exception:  # noqa: BLE001 - one failing undo does not stop the rest
            _delivery_log.exception("step_not_undone: %r", step.name)
