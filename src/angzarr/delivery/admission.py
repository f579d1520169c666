"""Admission: whether a delivery may call its handler now.

It stands between claim and handler. A delivery that is stopped here holds no slot and has used no
attempt. Switches are asked first, then breakers, the retry budget and limits. A refusal costs those
behind it nothing, and what was taken before it is given back. A delivery that a person paused never
grows too old.

`HeldHandlers` says which handlers are held back as a whole, so that their queues need not be
consumed: by a person, a poison wave, or a breaker that may pause queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta

from angzarr.delivery.delivery import Delivery, Postponed, Skipped
from angzarr.delivery.handlers import Handler
from angzarr.delivery.invoke import Ended, Stopped, stopped_by
from angzarr.delivery.poison_wave import breaker_of
from angzarr.delivery.schedule import SLEPT
from angzarr.errors import LimitExceededError, RetryBudgetSpentError
from angzarr.resilience.breaker import Barred, Breakers, Permit
from angzarr.resilience.breaker_guard import counted_within, next_call
from angzarr.resilience.budget import Budgets
from angzarr.resilience.limit import Limits, LimitScope
from angzarr.resilience.switches import Selector, SwitchAction, Switches, wait_of
from angzarr.resilience.taxonomy import ILLNESS

_log = logging.getLogger("angzarr.delivery")


@dataclass(slots=True)
class Permits:
    """The permits of a delivery that was let through; it must `leave` or `forgo` them, once."""

    token: str = ""
    #: Its number among guarded calls.
    number: int = 0
    #: By breaker, in the handler's order.
    breakers: list[Permit] = field(default_factory=list)
    #: The dependencies whose budgets it took a token from, since it is a retry.
    retried: tuple[str, ...] = ()
    #: Where it counts towards limits.
    scopes: tuple[LimitScope, ...] = ()


#: Of the many handlers that name nothing.
FREE = Permits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Asks the switches, then all that a handler names. Safe to use from many threads."""

    switch_gate: SwitchGate
    breakers: Breakers
    budgets: Budgets
    limits: Limits
    chance: Callable[[], float]
    sleep: Callable[[timedelta], object]

    def enter(self, delivery: Delivery, handler: Handler) -> Permits | Stopped | Skipped:
        """The permits of *delivery*, or what stops or drops it; then nothing is held."""
        if (halted := self.switch_gate.halt(delivery, handler)) is not None:
            return halted
        if not (handler.breakers or handler.limits):
            return FREE
        permits = Permits(delivery.token, next_call())
        try:
            stopped = self._ask(permits, delivery, handler)
        except BaseException:
            self.forgo(permits)
            raise
        if stopped is None:
            return permits
        self.forgo(permits)
        return stopped

    def leave(self, permits: Permits, handler: Handler, ended: Ended, took: timedelta) -> None:
        """Report how the call ended to what let it through; raises nothing.

        An error's own code may fail when it is looked at, and the call is over.
        """
        try:
            self._leave(permits, handler, ended, took)
        except Exception:  # noqa: BLE001 - the delivery has its outcome
            _log.exception("admission_not_told")

    def _leave(self, permits: Permits, handler: Handler, ended: Ended, took: timedelta) -> None:
        if isinstance(ended.outcome, Postponed | Stopped):
            self.forgo(permits)  # the handler says that it did not call
            return
        if permits.scopes:
            self.limits.release(permits.scopes, permits.token)
        ill = ended.seen is not None and ended.seen.category in ILLNESS
        harmed = {guard.name for guard in handler.breakers if ill and guard.counts(ended.error)}
        for guard, permit in zip(handler.breakers, permits.breakers, strict=True):
            if ill and guard.name not in harmed:
                self.breakers.forgo(permit)  # ill is another dependency of this handler
            elif ill and counted_within(ended.error, permits.number):
                self.breakers.forgo(permit)  # a breaker nearer to the call has counted it
            else:
                self.breakers.record(permit, ok=not ill, took=took)
        if permits.retried:
            well = [name for name in permits.retried if name not in harmed]
            self.budgets.returned(well, permits.token)
        else:
            self.budgets.first(_names(handler))

    def forgo(self, permits: Permits) -> None:
        """Give back what was let through and is not called."""
        for permit in permits.breakers:
            self.breakers.forgo(permit)
        if permits.retried:
            self.budgets.returned(permits.retried, permits.token)
        if permits.scopes:
            self.limits.release(permits.scopes, permits.token)

    def _ask(self, permits: Permits, delivery: Delivery, handler: Handler) -> Stopped | None:
        """The stop of *delivery*, if any; *permits* has what is held, also if this breaks off."""
        return (
            self._ask_breakers(permits, delivery, handler)
            or self._ask_budgets(permits, delivery, handler)
            or self._ask_limits(permits, delivery, handler)
        )

    def _ask_breakers(
        self, permits: Permits, delivery: Delivery, handler: Handler
    ) -> Stopped | None:
        for guard in handler.breakers:
            answer = self.breakers.admit(guard.name, permits.token, delivery.turn)
            if isinstance(answer, Barred):
                return stopped_by(guard.name, answer, delivery)
            permits.breakers.append(answer)
        return None

    def _ask_budgets(
        self, permits: Permits, delivery: Delivery, handler: Handler
    ) -> Stopped | None:
        if delivery.attempt == 1 or not handler.breakers:
            return None
        permits.retried = _names(handler)
        spent = self.budgets.retry(permits.retried, permits.token)
        if spent is None:
            return None
        permits.retried = ()
        return Stopped(
            spent.wait.by(self.chance()),
            f"the retry budget of {spent.name} is spent",
            RetryBudgetSpentError(spent.name),
        )

    def _ask_limits(self, permits: Permits, delivery: Delivery, handler: Handler) -> Stopped | None:
        """Ask the limits; a wait that a slot may sleep is slept, and they are asked again."""
        if not handler.limits:
            return None
        permits.scopes = tuple(
            LimitScope(limit, limit.key(delivery.event, handler.name)) for limit in handler.limits
        )
        left = SLEPT
        while exceeded := self.limits.take(permits.scopes, permits.token):
            wait = exceeded.wait.by(self.chance())
            if wait > left:
                permits.scopes = ()
                # Who has slept waits on the schedule from here on, not in its slot.
                return _reached(exceeded.name, wait if wait > SLEPT else wait + SLEPT)
            left -= wait
            self.sleep(wait)
        return None


def _reached(name: str, wait: timedelta) -> Stopped:
    return Stopped(wait, f"limit {name} is reached", LimitExceededError(name))


def _names(handler: Handler) -> tuple[str, ...]:
    return tuple(guard.name for guard in handler.breakers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchGate:
    """Asks the switches. Safe to use from many threads."""

    switches: Switches
    #: Returns the domain of a handler, an event's own and a queue (`Domains.of_delivery`).
    domain: Callable[[Handler, str | None, str], str]
    chance: Callable[[], float]

    def halt(self, delivery: Delivery, handler: Handler) -> Stopped | Skipped | None:
        """The effect of a switch on *delivery*, None if there is none for it."""
        if not self.switches.any():
            return None  # nearly always
        event = delivery.event
        domain = self.domain(handler, event.domain, delivery.message.queue)
        subject = Selector(handler.name, event.type, event.tenant_id, domain)
        switch = self.switches.of(subject)
        if switch is None:
            return None
        if switch.action is SwitchAction.DROP:
            return Skipped(reason=str(switch), switch=switch.id)
        return Stopped(wait_of(switch, self.switches.now(), self.chance()), str(switch))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHandlers:
    """The handlers held back at this moment, as far as this process has heard; asks no store."""

    switches: Switches
    breakers: Breakers
    #: Whether a breaker pauses queues.
    pausing: Callable[[str], bool]
    #: Domains in which another process of this worker found a poison wave, if it tells no fleet.
    domains: Collection[str] = ()

    def why(self, handler: Handler) -> str | None:
        """Why *handler* is held back, or None: it is not."""
        # Without a tenant: only what holds for the handler as a whole holds it back. An ordered one
        # is sent events of all types, and those that it does not take move its lanes on.
        event_type = handler.event_type if handler.order is None else None
        selector = Selector(handler.name, event_type, None, handler.domain)
        switch = self.switches.of(selector)
        if switch is not None and switch.action is SwitchAction.PAUSE:
            return f"{handler.name} is {switch}"
        if handler.domain is not None and self._has_wave(handler.domain):
            return f"domain {handler.domain} is held back"
        if handler.fallback is not None:
            return None  # it is called while a breaker is open
        names = (guard.name for guard in handler.breakers if self.pausing(guard.name))
        name = next(filter(self.breakers.refuses, names), None)
        return None if name is None else f"breaker {name} is open"

    def _has_wave(self, domain: str) -> bool:
        return domain in self.domains or self.breakers.refuses(breaker_of(domain))
