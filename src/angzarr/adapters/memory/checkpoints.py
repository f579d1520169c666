"""Checkpoints of one process, which its lanes count in."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from operator import attrgetter

from angzarr.ordering.lane import Step
from angzarr.projections.checkpoint import Checkpoint, Checkpoints


class MemoryCheckpoints(Checkpoints):
    """Checkpoints in a dictionary, one for each projection and type of event."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Checkpoint]] = {}
        self._lock = threading.Lock()

    def get(self, projection: str, /) -> Checkpoint | None:
        """The checkpoint of *projection*."""
        types = self.by_type(projection).values()
        return _sum(types) if types else None

    def by_type(self, projection: str, /) -> Mapping[str, Checkpoint]:
        """One for each type of event."""
        with self._lock:
            return dict(self._kept.get(projection, {}))

    def update(self, projection: str, checkpoint: Checkpoint, /) -> None:
        """Set the checkpoint to exactly *checkpoint*."""
        with self._lock:
            self._kept[projection] = {checkpoint.last_event_type: checkpoint}

    def reset(self, projection: str, /) -> None:
        """Clear it."""
        with self._lock:
            self._kept.pop(projection, None)

    def add(self, step: Step, /) -> None:
        """Count *step*; for the lanes."""
        one = Checkpoint(
            last_event_id=step.event_id,
            last_event_type=step.event_type,
            last_processed_at=step.at,
            events_processed=1,
        )
        with self._lock:
            types = self._kept.setdefault(step.lane.handler, {})
            there = types.get(one.last_event_type)
            types[one.last_event_type] = one if there is None else _sum([there, one])


def _sum(those: Collection[Checkpoint]) -> Checkpoint:
    last = max(those, key=attrgetter("last_processed_at"))
    return replace(last, events_processed=sum(one.events_processed for one in those))
