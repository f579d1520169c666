"""Lateness: when a delayed event may begin at the earliest and at the latest. Pure.

Never before its time: no way of delaying rounds down. After it an event is one like any other. It
may be late by what angzarr promises on a slow machine, and beyond that by what is on record only:

* the backlog: how long events without a delay that were sent about then waited, in the middle;
* servers that were away meanwhile, for as long as they were, and once until that was noticed: the
  place for letters as well, since who waits for it keeps a slot;
* a worker that was disturbed meanwhile, for as long as it was and until what it held is given
  back. In whose hands an event was nobody can tell, but it is in one worker's at a time, and the
  others are not disturbed by that: no more than `HANDS` such spans count, those that excuse most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

from chaos.disturbances import RETURN, Circumstances

#: Seconds by which times are rounded in messages, and clocks of one machine differ.
CLOCKS: Final = 0.05
#: Seconds after its time within which a delayed event is in its queue, and an idle worker on a
#: slow machine has begun it.
PROMISED, SLOW = 1.0, 2.0
#: Seconds before and after an event's time in which others tell how long the queue is.
AROUND: Final = 5.0
#: Seconds after which another worker has what a dead one held: its lease of 8 s, and a look.
GIVEN_BACK: Final = 10.0
#: Workers that may have been struck one after the other with one event in their hands.
HANDS: Final = 2


class Queued(NamedTuple):
    """An event without a delay: when it was sent, and how many seconds it waited to begin."""

    sent: float
    waited: float


class Span(NamedTuple):
    """From when to when."""

    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """What explains that events of one run of the checker began late."""

    around: Circumstances = field(default_factory=Circumstances)
    queued: Sequence[Queued] = ()

    def allowed(self, late: Span) -> float:
        """Return by how many seconds an event may be late that was due and began as *late* says."""
        away = list(self._away(late))
        in_hands = list(self._in_hands(late))
        excused = max(
            _covered([*away, *hands], late)
            for hands in combinations(in_hands, min(HANDS, len(in_hands)))
        )
        return PROMISED + SLOW + self.backlog(late.start) + excused + (RETURN if away else 0.0)

    def backlog(self, at: float) -> float:
        """Return how many seconds events waited that were sent about then."""
        waited = [one.waited for one in self.queued if abs(one.sent - at) <= AROUND]
        return median(waited) if waited else 0.0

    def _away(self, late: Span) -> Iterator[Span]:
        for one in self.around.outages:
            if one.start <= late.end and one.end >= late.start:
                yield Span(one.start, one.end)

    def _in_hands(self, late: Span) -> Iterator[Span]:
        for one in self.around.disturbances:
            if one.start <= late.end and one.end >= late.start:
                yield Span(one.start, one.end + GIVEN_BACK)


def _covered(spans: Sequence[Span], within: Span) -> float:
    """Return how many seconds of *within* lie in any of *spans*."""
    covered, at = 0.0, within.start
    for span in sorted(spans):
        start, end = max(span.start, at), min(span.end, within.end)
        if end > start:
            covered += end - start
            at = end
    return covered
