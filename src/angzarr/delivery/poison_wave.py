"""PoisonWaveBreaker: holds a domain back when nearly all its events would become dead letters.

A bad deploy, a lost permission or a changed schema fails everything that comes in. Without a guard
the whole queue would drain into the dead-letter queue; with it the domain's deliveries are held
back, an alarm is raised, and one event at a time shows when it is over.

It is a breaker around a domain: a dead letter is its failure, what was handled or skipped its
success. Everything else says nothing. It is shared by the fleet as all breakers are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from angzarr.clock import Clock
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Delivery, Handled, Outcome, Postponed, Skipped
from angzarr.delivery.delivery_facts import wave_fact
from angzarr.delivery.handlers import Handlers
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.facts.fact import FactLog
from angzarr.resilience.breaker import Barred, Breakers, Permit
from angzarr.resilience.breaker_guard import WAVE
from angzarr.resilience.breaker_rules import PROBE_WAIT, chance_of
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.delivery")


def breaker_of(domain: str) -> str:
    """The name of the breaker around *domain*; no handler's breaker begins so."""
    return f"{WAVE}:{domain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonWaveBreaker:
    """The guard of one process; safe to use from many threads."""

    breakers: Breakers
    handlers: Handlers
    letter_builder: DeadLetterBuilder
    facts: FactLog
    clock: Clock
    #: Gets a domain and until when it is held back, where others do not hear of breakers.
    on_held: Callable[[str, datetime], object] | None = None
    seldom: LogThrottle = field(default_factory=LogThrottle)

    def enter(self, delivery: Delivery) -> Permit | Postponed | None:
        """The permit of *delivery*, or a postponement if its domain is held back.

        None for one that has waited for its handler's maximum age: nothing waits for ever.
        """
        domain = self._domain(delivery)
        answer = self.breakers.admit(breaker_of(domain), delivery.token, delivery.turn)
        if isinstance(answer, Permit):
            return answer
        if self._is_old(delivery):
            return None
        return self._postponed(delivery, domain, answer, claimed=delivery.claimed_with_fetch)

    def judged(self, delivery: Delivery, outcome: Outcome, permit: Permit | None) -> Outcome:
        """*outcome*, or a postponement where it would be one more letter of a wave."""
        if permit is None:
            return outcome
        if not isinstance(outcome, DeadLettered | Handled | Skipped) or _says_nothing(outcome):
            self.breakers.forgo(permit)
            return outcome
        dead = isinstance(outcome, DeadLettered)
        self.breakers.record(permit, ok=not dead, took=timedelta(0))
        if not isinstance(outcome, DeadLettered) or self._is_old(delivery):
            return outcome
        barred = self._barred(permit.name, delivery)
        if barred is None:
            return outcome
        domain = self._domain(delivery)
        self._raise_alarm(domain, outcome, self.clock.now() + barred.retry_after)
        return self._postponed(delivery, domain, barred, claimed=outcome.claimed)

    def forgo(self, permit: Permit | None) -> None:
        """Give back what `enter` gave: nothing was decided."""
        if permit is not None:
            self.breakers.forgo(permit)

    def _barred(self, name: str, delivery: Delivery) -> Barred | None:
        """Bar *delivery*'s letter as one of a wave; its run is over, so it is not a probe."""
        answer = self.breakers.admit(name, delivery.token, delivery.turn)
        if isinstance(answer, Barred):
            return answer
        if not answer.probe:
            return None
        self.breakers.forgo(answer)
        return Barred(retry_after=PROBE_WAIT)

    def _postponed(
        self, delivery: Delivery, domain: str, barred: Barred, *, claimed: bool
    ) -> Postponed:
        return Postponed(
            delay=barred.wait(chance_of(delivery.turn)),
            why=f"poison wave in domain {domain}",
            claimed=claimed,
            held=True,
            wave=domain,
        )

    def _raise_alarm(self, domain: str, outcome: DeadLettered, until: datetime) -> None:
        if self.on_held is not None:
            self.on_held(domain, until)
        if not self.seldom.now(domain):
            return
        letter = outcome.letter
        _log.critical(
            "poison_wave: nearly all events of domain %r would become dead letters; they are kept"
            " and one is tried from time to time. Fix the cause, last seen in %s: %s",
            domain, letter.handler, letter.explanation,
        )  # fmt: skip
        self.facts.append([wave_fact(letter, self.clock.now())])

    def _domain(self, delivery: Delivery) -> str:
        handler = self.handlers.get(delivery.handler)
        domains = self.letter_builder.domains
        return domains.of_letter(handler, delivery.event.domain, delivery.message.queue)

    def _is_old(self, delivery: Delivery) -> bool:
        handler = self.handlers.get(delivery.handler)
        return handler is not None and delivery.held_for(self.clock.now()) > handler.max_age


#: Letters of runs that failed and of what does not fit. All others are no sign of a wave, and to
#: run their events again would do harm: a poisonous one kills its worker each time.
_OF_WAVES = frozenset({Reason.REFUSED, Reason.EXHAUSTED, Reason.UNDELIVERABLE})


def _says_nothing(outcome: Handled | Skipped | DeadLettered) -> bool:
    """True if *outcome* says nothing about its domain's health; a person's skip says nothing."""
    match outcome:
        case Skipped():
            return outcome.switch is not None
        case DeadLettered(letter=letter):
            return letter.reason not in _OF_WAVES
        case _:
            return False
