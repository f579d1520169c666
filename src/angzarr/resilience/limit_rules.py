"""The rules of a limit: gauge and time in, gauge out. Pure; `limit.lua` says the same to Redis.

A rate is metered by the generic cell rate algorithm (ITU-T I.371): each call makes the next one
due an interval later, and a call may come before it is due by as much as a burst needs. In any span
of t seconds no more than burst + rate·t calls are let through. Times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from angzarr.resilience.limit import Limit
from angzarr.resilience.line import Wait, next_place

#: Whoever is told to wait waits so long at least, and at most; in seconds.
SHORTEST: Final = 0.01
LONGEST: Final = 300.0
#: The same for a slot: how soon one is free is only estimated.
LONGEST_FOR_A_SLOT: Final = 60.0

#: What a new call weighs in the mean of how long slots are held.
_WEIGHT: Final = 0.2


class Gauge(NamedTuple):
    """What is known of one scope, besides who holds its slots."""

    #: When the next call is due if calls come evenly.
    due: float = 0.0
    #: The next place in the line for the rate, and in the line for a slot.
    line: float = 0.0
    queue: float = 0.0
    #: How long a call holds its slot, on average; at first a guess that is rather too short: who
    #: comes too early asks again, who comes too late leaves a slot idle.
    held: float = 0.1


NEW: Final = Gauge()


def early(limit: Limit, gauge: Gauge, now: float) -> float:
    """Return how many seconds too early a call would be; 0: it may be made."""
    return 0.0 if limit.rate is None else max(0.0, gauge.due - limit.tolerance - now)


def called(limit: Limit, gauge: Gauge, now: float) -> Gauge:
    """Return the gauge after a call that was let through."""
    if limit.rate is None:
        return gauge
    return gauge._replace(due=max(gauge.due, now) + limit.interval)


def wait_for_rate(limit: Limit, gauge: Gauge, now: float) -> tuple[Gauge, Wait]:
    """Return the gauge with one more in line for a call, an interval behind the one before."""
    soonest = max(early(limit, gauge, now), SHORTEST)
    behind, wait = next_place(gauge.line - now, soonest, pace=limit.interval, longest=LONGEST)
    return (gauge if behind is None else gauge._replace(line=now + behind)), wait


def wait_for_slot(limit: Limit, gauge: Gauge, now: float) -> tuple[Gauge, Wait]:
    """Return the gauge with one more in line for a slot.

    A slot is free again as often as calls end: places are as far apart as that on average.
    """
    pace = max(SHORTEST, gauge.held / (limit.concurrency or 1))
    behind, wait = next_place(gauge.queue - now, pace, pace=pace, longest=LONGEST_FOR_A_SLOT)
    return (gauge if behind is None else gauge._replace(queue=now + behind)), wait


def released(gauge: Gauge, took: float) -> Gauge:
    """Return the gauge after a call that held its slot for *took* seconds."""
    return gauge._replace(held=gauge.held + (took - gauge.held) * _WEIGHT)
