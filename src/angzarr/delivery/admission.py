"""Admission: whether a delivery may call its handler now, and who is told how the call ended.

It stands between claim and handler. Whoever is stopped here holds no slot and has used no attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from angzarr.delivery.calling import Ended, Stopped, stopped_by
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.outcome import Postponed, Skipped
from angzarr.delivery.switching import Switching
from angzarr.resilience.breaker import Barred, Breakers, Permit
from angzarr.resilience.guarded import counted_within, next_call
from angzarr.resilience.taxonomy import ILLNESS


class Passage(NamedTuple):
    """What a delivery was let through by; whoever has one must `leave` or `forgo` it."""

    permits: tuple[Permit, ...] = ()
    #: Its number among guarded calls.
    number: int = 0


#: Of the many handlers that name no breaker.
FREE = Passage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Asks the switches, then all that a handler names. Safe to use from many threads."""

    switching: Switching
    breakers: Breakers
    chance: Callable[[], float]

    def enter(self, delivery: Delivery, handler: Handler) -> Passage | Stopped | Skipped:
        """Return the passage of *delivery*, or what stops or drops it; then nothing is held."""
        if (halted := self.switching.halt(delivery, handler)) is not None:
            return halted
        permits: list[Permit] = []
        for guard in handler.breakers:
            answer = self.breakers.admit(guard.name, delivery.token)
            if isinstance(answer, Barred):
                self.forgo(Passage(tuple(permits)))
                return stopped_by(guard.name, answer, self.chance())
            permits.append(answer)
        return Passage(tuple(permits), next_call()) if permits else FREE

    def leave(self, passage: Passage, handler: Handler, ended: Ended, took: timedelta) -> None:
        """Tell those who let it through how the call ended; raises nothing."""
        if isinstance(ended.outcome, Postponed | Stopped):
            self.forgo(passage)  # the handler says that it did not call
            return
        ill = ended.seen is not None and ended.seen.category in ILLNESS
        for guard, permit in zip(handler.breakers, passage.permits, strict=True):
            if ill and not guard.counts(ended.error):
                self.breakers.forgo(permit)  # ill is another dependency of this handler
            elif ill and counted_within(ended.error, passage.number):
                self.breakers.forgo(permit)  # whoever stood nearer to the call has counted it
            else:
                self.breakers.record(permit, ok=not ill, took=took)

    def forgo(self, passage: Passage) -> None:
        """Give back what was let through and is not called."""
        for permit in passage.permits:
            self.breakers.forgo(permit)
