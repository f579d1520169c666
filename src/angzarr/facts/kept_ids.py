"""Ids of facts that this process has put in an outbox, so that no step puts them there again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from angzarr.facts.fact import Fact

#: Ids that are remembered: more than a process has deliveries in hand.
MOST_KEPT: Final = 10_000


class KeptFactIds:
    """The ids of facts that are kept, *most* of them; safe to use from many threads.

    A forgotten fact is put again. That does no harm: sinks keep the first of an id.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._ids: dict[str, None] = {}
        self._lock = threading.Lock()

    def new_of(self, facts: Sequence[Fact]) -> list[Fact]:
        """Those of *facts* that are not known to be kept, in order."""
        with self._lock:
            return [fact for fact in facts if fact.id not in self._ids]

    def add(self, facts: Sequence[Fact]) -> None:
        """Remember *facts*; with more than *most* the oldest are forgotten."""
        with self._lock:
            for fact in facts:
                self._ids[fact.id] = None
            while len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]

    def forget(self, facts: Sequence[Fact]) -> None:
        """Forget *facts*: their claim has its end."""
        with self._lock:
            for fact in facts:
                self._ids.pop(fact.id, None)

    def __len__(self) -> int:
        """How many ids are remembered."""
        return len(self._ids)
