"""OrderingStores: where lanes and checkpoints are kept, together."""

from __future__ import annotations

from typing import NamedTuple

from angzarr.ordering.lanes import Lanes
from angzarr.projections.checkpoint import Checkpoints


class OrderingStores(NamedTuple):
    """What is kept in the database of the order. To be closed."""

    lanes: Lanes
    checkpoints: Checkpoints

    def close(self) -> None:
        """Let connections go, those of both; safe to call twice."""
        self.lanes.close()
