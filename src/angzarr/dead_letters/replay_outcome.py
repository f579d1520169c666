"""ReplayOutcome: what became of a letter that was replayed, told to the analysis worker (22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol


def outcomes_queue(prefix: str) -> str:
    """Return the broker queue that carries them: ``angzarr-replay-outcomes`` by default.

    Apps that share a broker must differ in their prefix, or would take each other's answers.
    """
    return f"{prefix}-replay-outcomes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The end of replay number `replay` of the letter `letter_id`.

    `outcome` is ``handled``, ``duplicate``, ``skipped`` or ``dead_lettered``; a replay that is
    retried or postponed has not ended yet and tells nothing. ``parked`` is no end either: it waits
    in its lane behind an earlier event, however long that takes. `handle` belongs to the queue.
    """

    letter_id: str
    replay: int
    outcome: str
    handler: str
    event_id: str
    #: Key id and HMAC of all fields above; empty: its worker has no signing key.
    signature: str = ""
    handle: Any = None


class ReplayOutcomes(Protocol):
    """The queue of outcomes; both ends take a repeated one without harm."""

    def put(self, outcome: ReplayOutcome, /) -> None:
        """Return once the broker confirmed it; raises BrokerUnavailable otherwise."""

    def receive(self, *, limit: int, wait: timedelta) -> list[ReplayOutcome]:
        """Take up to *limit*, waiting at most *wait* for the first; back if never `done`."""

    def done(self, outcomes: Sequence[ReplayOutcome], /) -> None:
        """Let these outcomes go."""

    def close(self) -> None:
        """Give back what was not done and close connections; safe to call twice."""
