"""Load: how much of what was sent waits to begin, and how much began while faults went on. Pure.

A backlog that is worked off when all faults are over says nothing about faults. So the publisher
waits while more than a few seconds of work are waiting, and a run of which too much began in peace
is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from chaos.history import Pair, Run
from chaos.stream import Planned

#: Seconds of work that may wait; above it the publisher waits.
MOST_WAITING: Final = 5.0
#: Seconds over which the fleet's rate is taken, and the runs a second that it has at least: one
#: that stands still is to find something when it goes on.
WINDOW, LEAST_RATE = 10.0, 2.0
#: The share of all runs that must have begun from the first fault on, until the last was over and
#: noticed.
LEAST_SHARE: Final = 0.8


def awaited(planned: Planned) -> tuple[Pair, ...]:
    """Return the pairs of *planned* that begin by themselves once it is sent."""
    pairs = planned.pairs if planned.fate.begins else ()
    return tuple(Pair(*name) for name in (pairs[:1] if planned.fate.in_steps else pairs))


def seconds_waiting(due: Mapping[Pair, float], runs: Sequence[Run], now: float) -> float:
    """Return how many seconds of work wait at *now*: what is due and has not begun, by the rate."""
    begun = {run.pair for run in runs}
    waiting = sum(at <= now and pair not in begun for pair, at in due.items())
    recent = sum(now - WINDOW < run.began <= now for run in runs)
    return waiting / max(recent / WINDOW, LEAST_RATE)


def begun_within(runs: Iterable[Run], span: tuple[float, float]) -> int:
    """Return how many of *runs* began within *span*."""
    start, end = span
    return sum(start <= run.began <= end for run in runs)
