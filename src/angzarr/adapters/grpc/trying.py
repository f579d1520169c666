"""Trying: a call that is made again while its server is away, within one deadline. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import grpc

from angzarr.adapters.grpc.status import Told
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.retry_after import from_grpc_metadata


@dataclass(slots=True)
class Trying:
    """One call, and the tries it has made so far."""

    policy: Policy
    until: datetime
    tries: int = 0

    def left(self, now: datetime) -> float:
        """Return the seconds that a try which begins *now* may take."""
        return max((self.until - now).total_seconds(), 0.0)

    def after(self, said: Told, now: datetime, chance: float) -> timedelta | None:
        """Return the pause before the next try; None if what was *said* is final.

        It is never shorter than what the server asked for, and none that outlasts the deadline.
        """
        self.tries += 1
        if said.code is not grpc.StatusCode.UNAVAILABLE:
            return None
        least = from_grpc_metadata(said.metadata)
        pause = next_delay(self.policy, self.tries, chance, least)
        return pause if pause is not None and now + pause < self.until else None
