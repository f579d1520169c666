"""Admission: whether a delivery may call its handler now, and who is told how the call ended.

It stands between claim and handler. Whoever is stopped here holds no slot and has used no attempt.
Switches are asked first, then breakers, the retry budget and limits: what is refused costs those
behind it nothing, and whatever was taken before is given back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.invoke import Ended, Stopped, stopped_by
from angzarr.delivery.outcome import Postponed, Skipped
from angzarr.delivery.schedule import SLEPT
from angzarr.delivery.switching import Switching
from angzarr.errors import LimitExceededError, RetryBudgetSpentError
from angzarr.resilience.breaker import Barred, Breakers, Permit
from angzarr.resilience.budget import Budgets
from angzarr.resilience.guarded import counted_within, next_call
from angzarr.resilience.limit import Limits, Scope
from angzarr.resilience.taxonomy import ILLNESS

_log = logging.getLogger("angzarr.delivery")


@dataclass(slots=True)
class Passage:
    """What a delivery was let through by; whoever has one must `leave` or `forgo` it, once."""

    token: str = ""
    #: Its number among guarded calls.
    number: int = 0
    #: By breaker, in the handler's order.
    permits: list[Permit] = field(default_factory=list)
    #: The dependencies whose budgets it took a token from, since it is a retry.
    retried: tuple[str, ...] = ()
    #: Where it counts towards limits.
    scopes: tuple[Scope, ...] = ()


#: Of the many handlers that name nothing.
FREE = Passage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Asks the switches, then all that a handler names. Safe to use from many threads."""

    switching: Switching
    breakers: Breakers
    budgets: Budgets
    limits: Limits
    chance: Callable[[], float]
    sleep: Callable[[timedelta], object]

    def enter(self, delivery: Delivery, handler: Handler) -> Passage | Stopped | Skipped:
        """Return the passage of *delivery*, or what stops or drops it; then nothing is held."""
        if (halted := self.switching.halt(delivery, handler)) is not None:
            return halted
        if not (handler.breakers or handler.limits):
            return FREE
        passage = Passage(delivery.token, next_call())
        try:
            stopped = self._ask(passage, delivery, handler)
        except BaseException:
            self.forgo(passage)
            raise
        if stopped is None:
            return passage
        self.forgo(passage)
        return stopped

    def leave(self, passage: Passage, handler: Handler, ended: Ended, took: timedelta) -> None:
        """Tell those who let it through how the call ended; raises nothing.

        An error's own code may fail when it is looked at, and the call is over.
        """
        try:
            self._leave(passage, handler, ended, took)
        except Exception:  # noqa: BLE001 - the delivery has its outcome
            _log.exception("admission_not_told")

    def _leave(self, passage: Passage, handler: Handler, ended: Ended, took: timedelta) -> None:
        if isinstance(ended.outcome, Postponed | Stopped):
            self.forgo(passage)  # the handler says that it did not call
            return
        if passage.scopes:
            self.limits.release(passage.scopes, passage.token)
        ill = ended.seen is not None and ended.seen.category in ILLNESS
        harmed = {guard.name for guard in handler.breakers if ill and guard.counts(ended.error)}
        for guard, permit in zip(handler.breakers, passage.permits, strict=True):
            if ill and guard.name not in harmed:
                self.breakers.forgo(permit)  # ill is another dependency of this handler
            elif ill and counted_within(ended.error, passage.number):
                self.breakers.forgo(permit)  # whoever stood nearer to the call has counted it
            else:
                self.breakers.record(permit, ok=not ill, took=took)
        if passage.retried:
            well = [name for name in passage.retried if name not in harmed]
            self.budgets.returned(well, passage.token)
        else:
            self.budgets.first(_names(handler))

    def forgo(self, passage: Passage) -> None:
        """Give back what was let through and is not called."""
        for permit in passage.permits:
            self.breakers.forgo(permit)
        if passage.retried:
            self.budgets.returned(passage.retried, passage.token)
        if passage.scopes:
            self.limits.release(passage.scopes, passage.token)

    def _ask(self, passage: Passage, delivery: Delivery, handler: Handler) -> Stopped | None:
        """Return what stops *delivery*; *passage* has what is held, also if this breaks off."""
        return (
            self._ask_breakers(passage, delivery, handler)
            or self._ask_budgets(passage, delivery, handler)
            or self._ask_limits(passage, delivery, handler)
        )

    def _ask_breakers(
        self, passage: Passage, delivery: Delivery, handler: Handler
    ) -> Stopped | None:
        for guard in handler.breakers:
            answer = self.breakers.admit(guard.name, passage.token, delivery.turn)
            if isinstance(answer, Barred):
                return stopped_by(guard.name, answer, delivery)
            passage.permits.append(answer)
        return None

    def _ask_budgets(
        self, passage: Passage, delivery: Delivery, handler: Handler
    ) -> Stopped | None:
        if delivery.attempt == 1 or not handler.breakers:
            return None
        passage.retried = _names(handler)
        spent = self.budgets.retry(passage.retried, passage.token)
        if spent is None:
            return None
        passage.retried = ()
        return Stopped(
            spent.wait.by(self.chance()),
            f"the retry budget of {spent.name} is spent",
            RetryBudgetSpentError(spent.name),
        )

    def _ask_limits(self, passage: Passage, delivery: Delivery, handler: Handler) -> Stopped | None:
        """Ask the limits; a wait that a slot may sleep is slept, and they are asked again (15)."""
        if not handler.limits:
            return None
        passage.scopes = tuple(
            Scope(limit, limit.key(delivery.event, handler.name)) for limit in handler.limits
        )
        left = SLEPT
        while exceeded := self.limits.take(passage.scopes, passage.token):
            wait = exceeded.wait.by(self.chance())
            if wait > left:
                passage.scopes = ()
                # Who has slept waits on the schedule from here on, not in its slot.
                return _reached(exceeded.name, wait if wait > SLEPT else wait + SLEPT)
            left -= wait
            self.sleep(wait)
        return None


def _reached(name: str, wait: timedelta) -> Stopped:
    return Stopped(wait, f"limit {name} is reached", LimitExceededError(name))


def _names(handler: Handler) -> tuple[str, ...]:
    return tuple(guard.name for guard in handler.breakers)
