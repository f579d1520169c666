"""Target phases: how the breakers stand around the handlers that a replay job calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.analysis.classification.evidence import BreakerSeen
from angzarr.analysis.classification.evidence_collector import BreakerLook
from angzarr.analysis.replay.job_capacity import BARRED, Target
from angzarr.resilience.breaker import Phase

#: The worst first.
_ORDER: Final = (
    Target(Phase.ISOLATED),
    Target(Phase.OPEN),
    Target(Phase.HALF_OPEN),
    Target(Phase.CLOSED, ramping=True),
    Target(Phase.CLOSED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPhases:
    """Asks for the breakers around handlers; None: nobody can be asked."""

    look: BreakerLook | None

    def __call__(self, handlers: Sequence[str]) -> Target | None:
        """Return how the worst breaker around *handlers* stands; None: not known."""
        if self.look is None:
            return None
        seen = {one.name: one for handler in handlers for one in self.look.of(handler)[0] or ()}
        worst = min(map(target_of, seen.values()), key=_ORDER.index, default=None)
        barring = [one for one in seen.values() if target_of(one).phase in BARRED]
        return worst and worst._replace(barring=tuple(barring))


def target_of(seen: BreakerSeen) -> Target:
    """Return it for who is about to call: an open breaker that may be tried is half-open.

    Where nobody else calls, nobody but the replay itself would find out that the wait is over.
    """
    phase = Phase.HALF_OPEN if seen.to_be_tried else seen.phase
    return Target(phase, ramping=phase is Phase.CLOSED and seen.ramping)
