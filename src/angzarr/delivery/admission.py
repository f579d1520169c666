"""Admission: whether a delivery may call its handler now, and who is told how the call ended.

It stands between claim and handler. Whoever is stopped here holds no slot and has used no attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from angzarr.clock import Clock
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.outcome import Outcome, Postponed
from angzarr.resilience.breaker import Barred, Breakers, Permit
from angzarr.resilience.guarded import counted_by
from angzarr.resilience.taxonomy import ILLNESS, Classification


class Passage(NamedTuple):
    """What a delivery was let through by; whoever has one must `leave` or `forgo` it."""

    permits: tuple[Permit, ...] = ()


#: Of the many handlers that name no breaker.
FREE = Passage()


class Stopped(NamedTuple):
    """Why a delivery may not call its handler now, and when to ask again."""

    delay: timedelta
    why: str
    #: The breaker that is open, if that is why.
    breaker: str | None = None


class Ended(NamedTuple):
    """How a call ended: the outcome, and the error if there was one and what kind it is."""

    outcome: Outcome
    seen: Classification | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Asks all that a handler names. Safe to use from many threads."""

    breakers: Breakers
    clock: Clock
    chance: Callable[[], float]

    def enter(self, delivery: Delivery, handler: Handler) -> Passage | Stopped:
        """Return the passage of *delivery*, or what stops it; then nothing is held."""
        permits: list[Permit] = []
        for guard in handler.breakers:
            answer = self.breakers.admit(guard.name, delivery.token)
            if isinstance(answer, Barred):
                self.forgo(Passage(tuple(permits)))
                delay = answer.wait(self.chance())
                return Stopped(delay, f"breaker {guard.name} is open", guard.name)
            permits.append(answer)
        return Passage(tuple(permits)) if permits else FREE

    def leave(self, passage: Passage, handler: Handler, ended: Ended, took: timedelta) -> None:
        """Tell those who let it through how the call ended; raises nothing."""
        if isinstance(ended.outcome, Postponed):
            self.forgo(passage)  # the handler says that it did not call
            return
        ill = ended.seen is not None and ended.seen.category in ILLNESS
        for guard, permit in zip(handler.breakers, passage.permits, strict=True):
            if ill and not guard.counts(ended.error):
                self.breakers.forgo(permit)  # ill is another dependency of this handler
            elif ill and counted_by(ended.error):
                self.breakers.forgo(permit)  # whoever stood nearer to the call has counted it
            else:
                self.breakers.record(permit, ok=not ill, took=took)

    def forgo(self, passage: Passage) -> None:
        """Give back what was let through and is not called."""
        for permit in passage.permits:
            self.breakers.forgo(permit)
