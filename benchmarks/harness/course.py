"""Course: how a stream of events went through an outage, from moments alone. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: In a second that counts as full so much of the rate is handled: publishing is not quite even.
FULL = 0.95


class Course(NamedTuple):
    """When what happened (s): the outage, each call, and by event its publication and its end."""

    began: float
    ended: float
    calls: Sequence[float]
    published: Mapping[int, float]
    handled: Mapping[int, float]
    given_up: Mapping[int, float]

    def calls_while_sick(self) -> int:
        """Return the calls that reached the dependency during the outage."""
        return sum(self.began <= moment < self.ended for moment in self.calls)

    def calls_per_second(self, before: int, after: int) -> list[int]:
        """Return the calls of each second, from *before* the outage to *after* its beginning."""
        return per_second(self.calls, self.began - before, before + after)

    def full_after(self, rate: float) -> float | None:
        """Return how long after the outage the first second began with *rate* events handled."""
        handled = sorted(self.handled.values())
        for position, moment in enumerate(handled):
            last = position + round(FULL * rate) - 1
            if last >= len(handled):
                return None
            if moment >= self.ended and handled[last] <= moment + 1:
                return moment - self.ended
        return None

    def drained_after(self, rate: float) -> float:
        """Return how long after the outage no more than a second's worth of events waited.

        From then on no more did. 0: never more did.
        """
        ends = {**self.given_up, **self.handled}
        steps = [(moment, 1) for number, moment in self.published.items() if number in ends]
        steps += [(moment, -1) for moment in ends.values()]
        waiting, last = 0, self.ended
        for moment, step in sorted(steps):
            if waiting > rate:
                last = max(last, moment)
            waiting += step
        return last - self.ended

    def published_within(self) -> float:
        """Return how long publishing took: longer than planned if the machine is too busy."""
        return max(self.published.values()) - min(self.published.values())

    def slowest(self) -> float:
        """Return the longest time from an event's publication to its handling."""
        return max(
            (moment - self.published[number] for number, moment in self.handled.items()),
            default=0.0,
        )


def per_second(moments: Sequence[float], first: float, seconds: int) -> list[int]:
    """Count *moments* in each of so many *seconds* from *first* on."""
    counted = Counter(int(moment - first) for moment in moments if moment >= first)
    return [counted[second] for second in range(seconds)]
