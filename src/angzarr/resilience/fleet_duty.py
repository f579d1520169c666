"""FleetDuty: what one worker of a fleet does for all of them, and who that is.

It is a claim as any event's: it holds while the lease of its owner runs. Whoever dies or loses its
lease is followed by another worker, which asks for it in turns.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from angzarr.errors import StoreUnavailable
from angzarr.resilience.idempotency import Claim, Claimed, IdempotencyStore, Release, key_for
from angzarr.resilience.tenure import Tenure

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
