"""MemoryCheckpoints: checkpoints in one process, beside its lanes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from angzarr.projections.checkpoint import Checkpoint, Checkpoints


class MemoryCheckpoints(Checkpoints):
    """Checkpoints in a dictionary, one for each projection and type of event."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Checkpoint]] = {}
        self._lock = threading.Lock()

    def get(self, projection: str, /) -> Checkpoint | None:
        """Return the checkpoint of *projection*."""
        types = self.by_type(projection).values()
        if not types:
            return None
        last = max(types, key=attrgetter("last_processed_at"))
        return replace(last, events_processed=sum(one.events_processed for one in types))

    def by_type(self, projection: str, /) -> Mapping[str, Checkpoint]:
        """Return one for each type of event."""
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

    def add(self, projection: str, one: Checkpoint, /) -> None:
        """Count what was just processed; for the lanes."""
        with self._lock:
            types = self._kept.setdefault(projection, {})
            there = types.get(one.last_event_type)
            if there is not None:
                last = max(there, one, key=attrgetter("last_processed_at"))
                count = there.events_processed + one.events_processed
                one = replace(last, events_processed=count)
            types[one.last_event_type] = one
