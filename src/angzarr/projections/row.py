"""Row: an ordered handler, and how it does."""

from __future__ import annotations

from typing import NamedTuple

from angzarr.ordering.lane import Summary
from angzarr.ordering.lanes import Lanes
from angzarr.projections.checkpoint import Checkpoint, Checkpoints
from angzarr.projections.lag import Lag
from angzarr.projections.ordered_handler import Ordered


class Row(NamedTuple):
    """An ordered handler and how it does."""

    one: Ordered
    summary: Summary
    checkpoint: Checkpoint | None
    #: None: nobody asked for it.
    lag: Lag | None = None


def row_of(one: Ordered, lanes: Lanes, checkpoints: Checkpoints, lag: Lag | None = None) -> Row:
    """Return how *one* does; counts its lanes. Raises StoreUnavailable."""
    (summary,) = lanes.summaries([one.task])
    return Row(one, summary, checkpoints.get(one.task), lag)
