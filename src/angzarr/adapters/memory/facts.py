"""Fact logs without a server: one that keeps facts in this process, one that serves several."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from angzarr.facts.fact import Fact, FactLog

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


class FanOutFactLog:
    """Several fact logs as one; a failing one keeps no fact from the others."""

    def __init__(self, sinks: Sequence[FactLog]) -> None:
        self._sinks = tuple(sinks)

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:
        """Hand *facts* to every log, in order."""
        for sink in self._sinks:
            _guard(partial(sink.append, facts, before_ack=before_ack))

    def close(self) -> None:
        """Close every log."""
        for sink in self._sinks:
            _guard(sink.close)


def _guard(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - whatever a sink does, the delivery goes on
        _log.exception("fact_log_failed")
