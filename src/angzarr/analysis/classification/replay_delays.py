"""Pauses: when a replay begins, and when an entry that waits is looked at again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.analysis.classification.evidence import Evidence
from angzarr.resilience.backoff import Policy, delay

#: Entries whose dependency is well again are spread over this, so that they do not make it ill.
SPREAD: Final = timedelta(seconds=30)
#: How long an entry that waits goes without a look, however long its dependency has been ill.
LONGEST_LOOK: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Spans by a policy and by `chance`, which is in [0, 1)."""

    backoff: Policy
    chance: Callable[[], float]

    def replay(self, number: int) -> timedelta:
        """Return the pause before replay *number*, from 1."""
        return delay(self.backoff, number, self.chance())

    def soon(self) -> timedelta:
        """Return a moment within a short while; never longer than the first replay may wait."""
        return min(SPREAD, self.backoff.base) * self.chance()

    def look(self, evidence: Evidence) -> timedelta:
        """Return when to look again: half as long as it lasts, but not before it can be over.

        Stateless, so that a look changes nothing but the time of the next one.
        """
        first = max(self.backoff.base, timedelta(seconds=1))
        half = min(max(evidence.age / 2, first), max(LONGEST_LOOK, first))
        retries = [one.retry_at - evidence.now for one in evidence.barring if one.retry_at]
        least = max([half, *(min(one, LONGEST_LOOK) for one in retries)])
        return least * (1 + 0.5 * self.chance())
