"""Checkpoint: how far a projection has come, for people; port Checkpoints (spec P2).

Order is not kept by it but by lanes (`angzarr.ordering`); whoever moves a lane counts here.

OrderingStores: where lanes and checkpoints are kept, together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from angzarr.ordering.lanes import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was processed, and last of it what. Events that moved a lane, skipped ones too."""

    last_event_id: str
    last_event_type: str
    last_processed_at: datetime
    events_processed: int


class Checkpoints(Protocol):
    """Where checkpoints are kept: beside the lanes. All verbs raise StoreUnavailable."""

    @abstractmethod
    def get(self, projection: str, /) -> Checkpoint | None:
        """Return the checkpoint of *projection*; None: it has processed nothing yet."""

    @abstractmethod
    def by_type(self, projection: str, /) -> Mapping[str, Checkpoint]:
        """Return one for each type of event that it has processed."""

    @abstractmethod
    def update(self, projection: str, checkpoint: Checkpoint, /) -> None:
        """Set the checkpoint to exactly *checkpoint*, whether there was one or not."""

    @abstractmethod
    def reset(self, projection: str, /) -> None:
        """Clear it; safe to repeat."""


class OrderingStores(NamedTuple):
    """What is kept in the database of the order. To be closed."""

    lanes: Lanes
    checkpoints: Checkpoints

    def close(self) -> None:
        """Let connections go, those of both; safe to call twice."""
        self.lanes.close()
