"""Road: decide, then settle. What a worker calls for each delivery before it acknowledges."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from angzarr.delivery.delivery import Delivery
from angzarr.delivery.hold import Hold
from angzarr.delivery.hooks import Hooks
from angzarr.delivery.outcome import Outcome
from angzarr.delivery.pipeline import Pipeline
from angzarr.delivery.settle import Settler
from angzarr.errors import GivenBack, StoreUnavailable
from angzarr.resilience.idempotency import IdempotencyStore, Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """The whole road of one event within one process."""

    pipeline: Pipeline
    settler: Settler
    store: IdempotencyStore
    hold: Hold
    hooks: Hooks

    def take(self, delivery: Delivery) -> Outcome | None:
        """Return the outcome once it is true: the message may be acknowledged.

        None means that a successor owns the event (decisions 11): acknowledge and say nothing.
        Raises GivenBack when the worker stops while a server is away: do not acknowledge.
        """
        try:
            outcome = self.pipeline.decide(delivery)
            ours = self.hold.until_done(
                lambda: self.settler.settle(delivery, outcome),
                what="settle it",
                event_id=delivery.event.id,
            )
        except GivenBack:
            self._release(delivery)
            raise
        if not ours:
            return None
        self.hooks.settled(delivery, outcome)
        return outcome

    def close(self) -> None:
        """Write what is held back and close connections."""
        self.settler.close()

    def _release(self, delivery: Delivery) -> None:
        """Undo the start (decisions 4); where the store is away the owner's lease ends it."""
        with suppress(StoreUnavailable):
            self.store.settle(delivery.key, delivery.token, Release())
