"""The relay: moves facts from an outbox to their sink, in order (spec F1).

It writes first and removes then: a relay that dies in between writes some facts again, which the
sink tells by their ids. One worker of a fleet has the duty; two would only do the work twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_from_text
from angzarr.facts.outbox import FactOutbox, FactSink, OutboxDepth, WaitingFact
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable

_log = logging.getLogger("angzarr.facts")

#: Facts moved at once.
BATCH: Final = 500
#: Waits for the next look while there is nothing to move: they grow, and one that brought something
#: begins anew.
FIRST_LOOK: Final = timedelta(milliseconds=50)
LAST_LOOK: Final = timedelta(milliseconds=400)
#: Waits while outbox or sink is away, before jitter.
FIRST_WAIT: Final = timedelta(milliseconds=100)
LONGEST_WAIT: Final = timedelta(seconds=5)
#: How often it is asked whose duty it is, and how much waits.
ASKED_EVERY: Final = timedelta(seconds=2)
#: How long the last turn of a process may take.
LAST_ROUND: Final = timedelta(seconds=1.5)
#: For how long nothing may be moved before probes hear of it.
STUCK_AFTER: Final = timedelta(seconds=30)


class RelayDuty(Protocol):
    """Which process moves."""

    def is_ours(self) -> bool:
        """True if it is this one; never raises."""

    def end(self) -> None:
        """Let another one have it; never raises."""


class SoleDuty:
    """The duty of a process that always moves facts: what two of them move, the sink keeps once."""

    def is_ours(self) -> bool:
        """True."""
        return True

    def end(self) -> None:
        """Do nothing: there is nothing to let go."""


@dataclass(slots=True)
class RelayCounts:
    """What one relay has done, for metrics; *depth* is None while another process has the duty."""

    moved: int = 0
    refused: int = 0
    dropped: int = 0
    depth: int | None = None


@dataclass(slots=True, kw_only=True)
class FactRelay:
    """Takes turns in one thread."""

    outbox: FactOutbox
    sink: FactSink
    duty: RelayDuty
    chance: Callable[[], float]
    monotonic: Callable[[], float] = time.monotonic
    counts: RelayCounts = field(default_factory=RelayCounts, init=False)
    _ours: bool = field(default=False, init=False)
    _ask_at: float = field(default=float("-inf"), init=False)
    _look: timedelta = field(default=FIRST_LOOK, init=False)
    _wait: timedelta = field(default=FIRST_WAIT, init=False)
    #: Since when nothing could be moved, and why.
    _stuck_at: float | None = field(default=None, init=False)
    _why: str = field(default="", init=False)
    _seldom: LogThrottle = field(init=False)

    def __post_init__(self) -> None:
        self._seldom = LogThrottle(monotonic=self.monotonic)

    def turn(self) -> timedelta:
        """Move one batch; return how long to wait before the next turn. Never raises."""
        try:
            if self._is_due():
                self._ask()
            if not self._ours:
                return ASKED_EVERY
            moved = self._move()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it: no relay, no facts
            return self._fail(error)
        self._stuck_at, self._wait = None, FIRST_WAIT
        if moved == BATCH:
            return timedelta(0)
        self._look = FIRST_LOOK if moved else min(2 * self._look, LAST_LOOK)
        return self._look

    def leave(self) -> None:
        """Move what waits, in one last round of bounded length; what is left waits on."""
        until = self.monotonic() + LAST_ROUND.total_seconds()
        try:
            self._ours = self.duty.is_ours()
            while self._ours and self._move() == BATCH and self.monotonic() < until:
                pass
        except Exception as error:  # noqa: BLE001 - the process ends
            _log.warning("facts_left_in_the_outbox: they are moved later: %s", printable(error))
        finally:
            self._ours, self.counts.depth = False, None
            self.duty.end()

    def trouble(self) -> str:
        """Say what keeps it from moving facts, if it has for a while; for probes."""
        stuck_at = self._stuck_at
        if stuck_at is None or self.monotonic() - stuck_at < STUCK_AFTER.total_seconds():
            return ""
        lasts = round(self.monotonic() - stuck_at)
        waiting = self.counts.depth or 0
        return f"facts wait in the outbox for {lasts} s, {waiting} of them: {self._why}"

    def _is_due(self) -> bool:
        now = self.monotonic()
        if now < self._ask_at:
            return False
        self._ask_at = now + ASKED_EVERY.total_seconds()
        return True

    def _ask(self) -> None:
        """Ask whose duty it is, and keep the outbox within its bound."""
        self._ours = self.duty.is_ours()
        if not self._ours:
            self.counts.depth, self._stuck_at = None, None
            return
        depth = self.outbox.trim()
        self.counts.depth = depth.waiting
        if depth.dropped:
            self._tell_dropped(depth)

    def _tell_dropped(self, depth: OutboxDepth) -> None:
        self.counts.dropped += depth.dropped
        if self._seldom.now("dropped"):
            _log.error(
                "facts_dropped: the outbox is full with %d facts, the oldest %d were dropped since"
                " the last look, %d in all: see that facts.url can be reached, or raise"
                " facts.most_waiting", depth.waiting, depth.dropped, self.counts.dropped,
            )  # fmt: skip

    def _move(self) -> int:
        waiting = self.outbox.read(BATCH)
        if waiting:
            self.sink.write(self._facts(waiting))
            self.outbox.remove([one.place for one in waiting])
            self.counts.moved += len(waiting)
        return len(waiting)

    def _facts(self, waiting: Sequence[WaitingFact]) -> list[Fact]:
        found = []
        for one in waiting:
            try:
                found.append(fact_from_text(one.text))
            except (ValueError, RecursionError) as error:  # none of ours: it holds up no other
                self.counts.refused += 1
                _log.error(
                    "fact_refused: the outbox holds a line that is no fact: %s: %s",
                    printable(error), printable(one.text[:200]),
                )  # fmt: skip
        return found

    def _fail(self, error: Exception) -> timedelta:
        if self._stuck_at is None:
            self._stuck_at = self.monotonic()
        self._why = printable(error)
        if self._seldom.now("delayed"):
            _log.warning("facts_delayed: the relay cannot move them, trying again: %s", self._why)
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
        return wait * (0.5 + self.chance())
