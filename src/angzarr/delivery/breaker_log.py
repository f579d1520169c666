"""BreakerLog: what breakers do, as facts and log lines (spec D5, O4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from angzarr.facts import Fact, FactLog
from angzarr.resilience.breaker import Phase, Refusal, Transition

_log = logging.getLogger("angzarr.flow")

_WORDS = {
    Phase.OPEN: "circuit_breaker_opened",
    Phase.HALF_OPEN: "circuit_breaker_half_open",
    Phase.CLOSED: "circuit_breaker_closed",
    Phase.ISOLATED: "circuit_breaker_isolated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLog:
    """Fulfils `BreakerWatch`. *facts* is asked for its log when there is something to say."""

    facts: Callable[[], FactLog]

    def changed(self, transition: Transition, /) -> None:
        """Append the fact of a transition and log it."""
        level = logging.INFO if transition.after is Phase.CLOSED else logging.WARNING
        _log.log(
            level, "%s: %s, %s to %s, %s; of %d calls %d failed",
            _WORDS[transition.after], transition.name, transition.before, transition.after,
            transition.reason, transition.counts.requests, transition.counts.failures,
        )  # fmt: skip
        self._append(transition_fact(transition))

    def refused(self, refusal: Refusal, /) -> None:
        """Append the fact that calls are refused."""
        self._append(refusal_fact(refusal))

    def _append(self, fact: Fact) -> None:
        try:
            self.facts().append([fact])
        except Exception:  # noqa: BLE001 - no fact is worth a delivery
            _log.exception("fact_not_appended")


def transition_fact(transition: Transition) -> Fact:
    """Return the fact of *transition*; its id is the same whoever tells of it."""
    return Fact(
        id=f"breaker:{transition.name}:{transition.era}:{transition.at.isoformat()}",
        type="lifecycle",
        subtype="circuit_breaker_state_changed",
        at=transition.at,
        data={
            "circuit_name": transition.name,
            "previous_state": transition.before.value,
            "new_state": transition.after.value,
            "reason": transition.reason.value,
            "failure_count": transition.counts.failures,
            "success_count": transition.counts.successes,
            "request_count": transition.counts.requests,
            "by": transition.by or None,
        },
    )


def refusal_fact(refusal: Refusal) -> Fact:
    """Return the fact that a breaker refuses calls."""
    return Fact(
        id=f"breaker:{refusal.name}:refused:{refusal.at.isoformat()}",
        type="error",
        subtype="external",
        at=refusal.at,
        data={
            "error_code": "CIRCUIT_OPEN",
            "error_type": "circuit_breaker",
            "circuit_name": refusal.name,
            "circuit_state": refusal.phase.value,
            "error_message": f"breaker {refusal.name!r} refuses calls",
            "retry_after_ms": round(refusal.retry_after.total_seconds() * 1000),
            "resolved": False,
        },
    )
