"""Fact logs without a server: one that keeps facts in this process, one that serves several."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice, starmap
from typing import Final

from angzarr.facts.fact import Fact, FactLog
from angzarr.facts.outbox import MOST_WAITING, OutboxDepth, WaitingFact

_log = logging.getLogger("angzarr.facts")


class MemoryFactLog:
    """Facts of this process, in order of arrival; for tests and for a look inside a demo."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, Fact] = {}

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:  # noqa: ARG002 - kept at once
        """Keep each of *facts* whose id is new."""
        with self._lock:
            for fact in facts:
                self._by_id.setdefault(fact.id, fact)

    def add(self, fact: Fact, /) -> Fact | None:
        """Keep *fact*, or return the one that has its id already."""
        with self._lock:
            before = self._by_id.get(fact.id)
            if before is None:
                self._by_id[fact.id] = fact
            return before

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:
        """Keep them here."""
        self.append(facts, before_ack=before_ack)
        return ()

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:  # noqa: ARG002 - no claim keeps any
        """None of them."""
        return ()

    def flush(self, within: timedelta, /) -> bool:  # noqa: ARG002 - kept at once
        """Do nothing: all is kept, for as long as anything here is."""
        return True

    def close(self) -> None:
        """Do nothing: nothing is held back."""

    def read(self) -> list[Fact]:
        """All facts, oldest first."""
        with self._lock:
            return list(self._by_id.values())


_SHARED: Final[dict[str, MemoryFactLog]] = {}


def shared(url: str) -> MemoryFactLog:
    """The facts of this process that are kept under *url*, ``memory://`` and a name."""
    return _SHARED.setdefault(url, MemoryFactLog())


def forget(url: str) -> None:
    """Let the facts under *url* go."""
    _SHARED.pop(url, None)


class MemoryFactOutbox:
    """Facts that wait in this process, *most* of them; safe to use from many threads."""

    def __init__(self, *, most: int = MOST_WAITING) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, str] = {}
        self._number = self._dropped = 0

    def put(self, texts: Sequence[str], /) -> None:
        """Put *texts* last."""
        with self._lock:
            for text in texts:
                self._number += 1
                self._waiting[str(self._number)] = text
            self._drop_oldest()

    def read(self, most: int, /) -> list[WaitingFact]:
        """The oldest *most* facts."""
        with self._lock:
            return list(starmap(WaitingFact, islice(self._waiting.items(), most)))

    def remove(self, places: Sequence[str], /) -> None:
        """Remove the facts at *places*."""
        with self._lock:
            for place in places:
                self._waiting.pop(place, None)

    def trim(self) -> OutboxDepth:
        """How many wait, and how many were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
            return OutboxDepth(len(self._waiting), dropped)

    def _drop_oldest(self) -> None:
        while len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
            self._dropped += 1


class FanOutFactLog:
    """Several fact logs as one; a failing one keeps no fact from the others."""

    def __init__(self, sinks: Sequence[FactLog]) -> None:
        self._sinks = tuple(sinks)

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:
        """Hand *facts* to every log, in order."""
        for sink in self._sinks:
            with _guarded():
                sink.append(facts, before_ack=before_ack)

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:
        """Hand *facts* to every log; the lines that some leave to the claim's ending."""
        carried: list[str] = []
        for sink in self._sinks:
            with _guarded():
                carried.extend(sink.carry(facts, before_ack=before_ack))
        return tuple(carried)

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:
        """The lines of those that some log leaves to a claim."""
        lines: list[str] = []
        for sink in self._sinks:
            with _guarded():
                lines.extend(sink.lines(facts))
        return tuple(lines)

    def flush(self, within: timedelta, /) -> bool:
        """Wait for every log."""
        kept = []
        for sink in self._sinks:
            kept.append(False)
            with _guarded():
                kept[-1] = sink.flush(within)
        return all(kept)

    def close(self) -> None:
        """Close every log."""
        for sink in self._sinks:
            with _guarded():
                sink.close()


@contextmanager
def _guarded() -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - whatever a sink does, the delivery goes on
        _log.exception("fact_log_failed")
