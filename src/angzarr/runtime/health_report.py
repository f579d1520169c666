"""Health: the conditions of a probe, its report as JSON, and a heartbeat that threads share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

#: The most characters that a condition says.
LONGEST: Final = 300


class Condition(NamedTuple):
    """One thing that must be so. What it *says* is shown to anybody: never a secret."""

    name: str
    holds: bool
    says: str


class Report(NamedTuple):
    """What a probe found; it is about the whole process."""

    #: ``live`` or ``ready``.
    probe: str
    conditions: Sequence[Condition]

    @property
    def holds(self) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds for condition in self.conditions)

    def body(self) -> bytes:
        """The report as JSON."""
        conditions = {
            name: {"ok": holds, "says": says[:LONGEST]} for name, holds, says in self.conditions
        }
        return json.dumps(
            {"probe": self.probe, "ok": self.holds, "conditions": conditions}
        ).encode()


def since(seconds: float) -> str:
    """A span as a probe says it."""
    return f"{seconds:.1f} s"


class Heartbeat:
    """One monotonic stamp, written by the code that moves and read by any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beaten_at = monotonic()

    def beat(self) -> None:
        """Note that it moved."""
        self._beaten_at = self._monotonic()

    def age(self) -> float:
        """How many seconds ago it moved last, or was made."""
        return max(self._monotonic() - self._beaten_at, 0.0)
