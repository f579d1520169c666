"""Claiming: ask the claim store for an event, and whether it is still ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.delivery.delivery import Delivery
from angzarr.delivery.hold import Hold
from angzarr.resilience.idempotency import Claim, ClaimAnswer, Claimed, IdempotencyStore, InProgress
from angzarr.resilience.tenure import Tenure

#: A copy asks again after these before it waits: it was published before its predecessor ended its
#: claim (10), which takes some milliseconds. In all no more than a slot may sleep (15).
ASKED_AGAIN: Final = tuple(timedelta(milliseconds=pause) for pause in (5, 15, 30, 50))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """Holds a delivery while the store is away. Safe to use from many threads."""

    store: IdempotencyStore
    tenure: Tenure
    hold: Hold

    def ask(self, delivery: Delivery, claim: Claim) -> ClaimAnswer:
        """Return the store's answer to *claim*, which may be sent any number of times."""
        for pause in (*(ASKED_AGAIN if delivery.position.hop else ()), None):
            (answer,) = self.hold.until_done(
                lambda: self.tenure.claim(self.store, [claim]),
                what="claim it",
                delivery=delivery,
            )
            if pause is None or not isinstance(answer, InProgress):
                break
            self.hold.clock.sleep(pause)
        return answer

    def is_sure(self, claimed: Claimed) -> bool:
        """Tell whether `holds` need not ask."""
        return not self.tenure.is_over(claimed.sure_until)

    def holds(self, delivery: Delivery, claimed: Claimed) -> bool:
        """Tell whether *delivery* holds its event still; asks if its lease may have ended since.

        Whoever else claimed the event meanwhile took this worker for dead (decisions 2).
        """

        def ask() -> bool:
            self.tenure.secured(delivery.owner)
            return self.store.owns(delivery.key, delivery.token)

        if self.is_sure(claimed):
            return True
        return self.hold.until_done(ask, what="ask for it", delivery=delivery)
