"""Step retries: one step of a handler is tried again while it runs (spec D3, `event_handler`).

That is for failures that pass within seconds. Others are ordinary failures of the delivery, which
waits in the schedule and holds no slot.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from angzarr.clock import Clock
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Handler
from angzarr.delivery.retry_until_available import NOTICE
from angzarr.errors import CircuitOpenError, ConfigurationError, Directive, GivenBack
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.taxonomy import Verdict
from angzarr.resilience.taxonomy_codes import class_paths
from angzarr.runtime.cooperative import in_event_loop

_log = logging.getLogger("angzarr.delivery")

T = TypeVar("T")

#: What says the outcome of the whole delivery, by our word or by Celery's.
_OUTCOMES = (Directive, CircuitOpenError, GivenBack)
#: Celery's word that the handler's time is over: a handler that goes on is killed.
_TIME_IS_OVER = "billiard.exceptions.SoftTimeLimitExceeded"
#: Seconds from which a time limit is none: beyond, calendars end.
_ENDLESS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """Makes what tries again for each delivery. Safe to use from many threads."""

    failure_policy: FailurePolicy
    #: Whether the worker stops: then nothing waits here any longer.
    stopping: Callable[[], bool]
    #: How long a handler may run, by its name; None: without end, or not known.
    time_limit: Callable[[str], timedelta | None] = lambda _handler: None

    def retrying(
        self, delivery: Delivery, handler: Handler, began: datetime, policy: Policy | str
    ) -> Retrying:
        """The object that retries the steps of *handler*, which *began* then."""
        limits = (self.time_limit(handler.name), *_limits_of(delivery))
        ends = (began + limit for limit in limits if limit is not None)
        until = min(filter(None, (delivery.expires_at, *ends)), default=None)
        return Retrying(
            policy=self.failure_policy.policies.named(policy),
            failure_policy=self.failure_policy,
            stopping=self.stopping,
            delivery=delivery,
            handler=handler,
            until=until,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """Tries steps of one delivery again under one policy."""

    policy: Policy
    failure_policy: FailurePolicy
    stopping: Callable[[], bool]
    delivery: Delivery
    handler: Handler
    #: When the message expires or its time limit strikes, whichever is first.
    until: datetime | None = None

    def call(self, step: Callable[[], T]) -> T:
        """The value of *step*; raises its last error, or at once one that no retry cures."""
        _refuse_in_a_loop()
        for attempt in itertools.count(1):
            try:
                value = step()
            except Exception as error:
                pause = self._pause(attempt, error)
                if pause is None:
                    raise
                for piece in _pieces(pause):
                    self._clock.sleep(piece)
                    if self.stopping():
                        raise
            else:
                return _no_coroutine(value)
        raise AssertionError("attempts end by returning or raising")

    async def acall(self, step: Callable[[], Awaitable[T]]) -> T:
        """Await *step* as `call` calls one; others run in the event loop meanwhile."""
        for attempt in itertools.count(1):
            try:
                return await step()
            except Exception as error:
                pause = self._pause(attempt, error)
                if pause is None:
                    raise
                for piece in _pieces(pause):
                    await self._clock.asleep(piece)
                    if self.stopping():
                        raise
        raise AssertionError("attempts end by returning or raising")

    @property
    def _clock(self) -> Clock:
        return self.failure_policy.clock

    def _pause(self, attempt: int, error: Exception) -> timedelta | None:
        """How long to wait before the next try of a step, or None: *error* is final here.

        Who asks for a longer wait than the policy knows is waited for in the schedule.
        """
        if isinstance(error, _OUTCOMES) or _TIME_IS_OVER in class_paths(error):
            return None
        seen = self.failure_policy.classify(self.delivery, self.handler, error)
        named = self.policy.names(error)
        verdict = self.failure_policy.verdict(
            self.delivery, self.handler, seen.category, named=named
        )
        if verdict is not Verdict.RETRY or not self.policy.retries(seen.category, error):
            return None
        least = seen.retry_after or timedelta(0)
        pause = next_delay(self.policy, attempt, self.failure_policy.chance(), least)
        if pause is None or least > self.policy.max_delay or self.stopping():
            return None
        if self.until is not None and self._clock.now() + pause >= self.until:
            return None
        _log.info(
            "step_retried: event %s, try %d of a step of %s in %.3f s: %s",
            self.delivery.event.id, attempt + 1, self.handler.name, pause.total_seconds(),
            seen.code,
        )  # fmt: skip
        return pause


def _pieces(pause: timedelta) -> Iterator[timedelta]:
    """Cut a pause, so that a shutdown is noticed in it."""
    while pause > timedelta(0):
        yield min(pause, NOTICE)
        pause -= NOTICE


def _limits_of(delivery: Delivery) -> list[timedelta]:
    """The time limits that a message brings, hard and soft (Celery's ``timelimit``)."""
    limits = delivery.message.headers.get("timelimit")
    if not isinstance(limits, list | tuple):
        return []
    numbers = (limit for limit in limits if isinstance(limit, int | float))
    return [timedelta(seconds=limit) for limit in numbers if 0 < limit < _ENDLESS]


def _refuse_in_a_loop() -> None:
    if not in_event_loop():
        return
    msg = "ctx.retry would block the event loop while it waits: use await ctx.aretry(…)"
    raise ConfigurationError(msg)


def _no_coroutine(value: T) -> T:
    """*value*; a coroutine has not run yet, so nothing of it was tried."""
    if inspect.iscoroutine(value):
        value.close()
        msg = "ctx.retry was given a coroutine function: use await ctx.aretry(…)"
        raise ConfigurationError(msg)
    return value
