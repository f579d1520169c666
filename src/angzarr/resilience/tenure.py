"""Tenure: until when a process may rely on its owner's lease, by its own clock (decisions 2).

Claims hold while the lease of their owner runs. A process that stood still for longer, or whose
store was away for longer, may have lost them without a word: before it runs what it claimed then,
it has to ask. So that it need not ask each time it remembers until when the lease runs for certain.

FleetDuty: what one worker of a fleet does for all of them, and who that is.

It is a claim as any event's: it holds while the lease of its owner runs. Whoever dies or loses its
lease is followed by another worker, which asks for it in turns.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

from angzarr.errors import StoreUnavailable
from angzarr.resilience.idempotency import (
    Claim,
    ClaimAnswer,
    Claimed,
    IdempotencyStore,
    OwnerLeases,
    Release,
    key_for,
)

#: How long an owner counts as alive after its last sign of life (2).
LEASE: Final = timedelta(seconds=8)


class Tenure:
    """One for each process of a worker. Safe to use from threads.

    *monotonic* counts for all processes of a machine from the same moment, as `time.monotonic`
    does: one process may judge by it what another one found.
    """

    def __init__(
        self,
        leases: OwnerLeases,
        *,
        span: timedelta = LEASE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._span = span
        self._monotonic = monotonic
        self._known = ("", float("-inf"))

    def renew(self, owner: str) -> float:
        """Renew *owner*'s lease and return until when it runs at least; raises StoreUnavailable."""
        began = self._monotonic()  # the store counts from when it hears of it, which is later
        self._leases.renew(owner, self._span)
        until = began + self._span.total_seconds()
        self._known = (owner, until)
        return until

    def end(self, owner: str) -> None:
        """End *owner*'s lease; raises StoreUnavailable."""
        self._known = ("", float("-inf"))
        self._leases.end(owner)

    def secured(self, owner: str) -> float:
        """Return until when *owner*'s lease runs at least; renew it if that is soon, or unknown.

        Mostly no round trip; raises StoreUnavailable.
        """
        known, until = self._known
        left = until - self._monotonic()
        if known == owner and left * 2 >= self._span.total_seconds():
            return until
        return self.renew(owner)

    def sure_until(self, owner: str) -> float:
        """Return until when *owner*'s lease runs at least, as far as is known; asks nobody."""
        known, until = self._known
        return until if known == owner else float("-inf")

    def is_sure(self, owner: str) -> bool:
        """Tell whether *owner*'s lease runs now, as far as is known; asks nobody."""
        return not self.is_over(self.sure_until(owner))

    def claim(self, store: IdempotencyStore, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        """Return *store*'s answers to *claims* of one owner, whose lease is secured before.

        Nobody can take what is claimed for a dead worker's; each says until when that is certain.
        Raises StoreUnavailable.
        """
        sure_until = self.secured(claims[0].owner)
        return [
            replace(answer, sure_until=sure_until) if isinstance(answer, Claimed) else answer
            for answer in store.claim(claims)
        ]

    def is_over(self, until: float) -> bool:
        """Tell whether a lease that ran *until* then may have ended since."""
        return self._monotonic() >= until


#: Stands in its keys where claims of events name their handler.
_HANDLER = "angzarr.fleet_duty"


class FleetDuty:
    """The duty *name*, asked for by *owner*. For one thread.

    While the claim store is away whoever had the duty keeps it: it is for work that may be done
    twice, and that is missed where nobody does it.
    """

    def __init__(self, tenure: Tenure, store: IdempotencyStore, owner: str, name: str) -> None:
        self._tenure = tenure
        self._store = store
        self._claim = Claim(
            key=key_for(_HANDLER, name), token=uuid.uuid4().hex, owner=owner, counted=False
        )
        self._ours = False

    def is_ours(self) -> bool:
        """Take the duty if no living worker has it; return whether it is this one's."""
        with suppress(StoreUnavailable):
            [answer] = self._tenure.claim(self._store, [self._claim])
            self._ours = isinstance(answer, Claimed)
        return self._ours

    def end(self) -> None:
        """Let another worker take the duty at once; if the store is away, once the lease ends."""
        if self._ours:
            self._ours = False
            with suppress(StoreUnavailable):
                self._store.settle(self._claim.key, self._claim.token, Release(was_counted=False))
