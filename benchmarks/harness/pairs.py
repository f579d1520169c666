"""Paired runs and their arithmetic: ours, theirs, ours, theirs, … on one machine in one sitting.

A machine's speed drifts; neighbours in time share it, so only the numbers of one pair are
compared, and the median over the pairs is what is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

T = TypeVar("T")

#: Fewer pairs say little about noise.
FEWEST = 5


class Pair(NamedTuple):
    """One run of ours and the run of theirs beside it, in one unit."""

    ours: float
    theirs: float

    def swapped(self) -> Pair:
        """Theirs in place of ours: of times, the ratio is how many times as fast ours is."""
        return Pair(self.theirs, self.ours)


def alternate(
    ours: Callable[[], float], theirs: Callable[[], float], *, pairs: int, discarded: int = 0
) -> list[Pair]:
    """Run both in turn and return *pairs* pairs; the first *discarded* only warm up."""
    return [Pair(*one) for one in in_turn((ours, theirs), rounds=pairs, discarded=discarded)]


def in_turn(
    sides: Sequence[Callable[[], T]], *, rounds: int, discarded: int = 0
) -> list[tuple[T, ...]]:
    """Run all *sides* one after the other, *rounds* times; the first *discarded* only warm up."""
    if rounds < FEWEST:
        msg = f"{rounds} pairs are too few: run at least {FEWEST}"
        raise ValueError(msg)
    ran = [tuple(side() for side in sides) for _ in range(discarded + rounds)]
    return ran[discarded:]


def ratios(pairs: Sequence[Pair]) -> list[float]:
    """Return ours divided by theirs, pair by pair."""
    return [pair.ours / pair.theirs for pair in pairs]


def differences(pairs: Sequence[Pair]) -> list[float]:
    """Return ours minus theirs, pair by pair."""
    return [pair.ours - pair.theirs for pair in pairs]


def medians(pairs: Sequence[Pair]) -> Pair:
    """Return the median of each side, for the absolute numbers beside a ratio."""
    return Pair(median(pair.ours for pair in pairs), median(pair.theirs for pair in pairs))


def middle_rate(moments: Sequence[float], *, share: float = 0.98) -> float:
    """Return events per unit of time over the middle *share* of *moments*, in any order.

    The ends are left out: the first events wait for processes to warm up, the last for company.
    """
    ordered = sorted(moments)
    cut = round(len(ordered) * (1 - share) / 2)
    first, last = cut, len(ordered) - 1 - cut
    if last <= first or ordered[last] == ordered[first]:
        msg = f"{len(ordered)} moments are too few for a rate"
        raise ValueError(msg)
    return (last - first) / (ordered[last] - ordered[first])
