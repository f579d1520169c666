"""Switching: whether a person paused or dropped a delivery; asked before all else.

A pause is a person's word: who waits for it uses no attempt and never grows too old.

Holding: why a handler is held back as a whole, so that its queue need not be consumed.

By a person, for a poison wave in its domain, or for a breaker that its settings let pause queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.invoke import Stopped
from angzarr.delivery.outcome import Skipped
from angzarr.delivery.poison_wave import breaker_of
from angzarr.resilience.breaker import Breakers
from angzarr.resilience.switch_rules import wait_of
from angzarr.resilience.switches import Action, Selector, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """Asks the switches. Safe to use from many threads."""

    switches: Switches
    #: Returns the domain of a handler, an event's own and a queue (`Domains.of_delivery`).
    domain: Callable[[Handler, str | None, str], str]
    chance: Callable[[], float]

    def halt(self, delivery: Delivery, handler: Handler) -> Stopped | Skipped | None:
        """Return what a switch makes of *delivery*, None if there is none for it."""
        if not self.switches.any():
            return None  # nearly always
        event = delivery.event
        domain = self.domain(handler, event.domain, delivery.message.queue)
        subject = Selector(handler.name, event.type, event.tenant_id, domain)
        switch = self.switches.of(subject)
        if switch is None:
            return None
        if switch.action is Action.DROP:
            return Skipped(reason=str(switch), switch=switch.id)
        return Stopped(wait_of(switch, self.switches.now(), self.chance()), str(switch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What is held back at this moment, as far as this process has heard; asks nobody."""

    switches: Switches
    breakers: Breakers
    #: Whether a breaker pauses queues.
    pausing: Callable[[str], bool]
    #: Domains in which another process of this worker found a poison wave, if it tells no fleet.
    domains: Collection[str] = ()

    def why(self, handler: Handler) -> str | None:
        """Return why *handler* is held back, or None: it is not."""
        # Without a tenant: only what holds for the handler as a whole holds it back. An ordered one
        # is sent events of all types, and those that it does not take move its lanes on.
        event_type = handler.event_type if handler.order is None else None
        selector = Selector(handler.name, event_type, None, handler.domain)
        switch = self.switches.of(selector)
        if switch is not None and switch.action is Action.PAUSE:
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
