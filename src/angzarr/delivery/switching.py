"""Switching: whether a person paused or dropped a delivery; asked before all else.

A pause is a person's word: who waits for it uses no attempt and never grows too old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from angzarr.delivery.calling import Stopped
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.outcome import Skipped
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
