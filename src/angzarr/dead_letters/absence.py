"""Absence: how long a target that was found away is passed over, so that an outage is paid seldom.

A target that is away costs its time-out each time it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

#: A pause is between half of what it has grown to and all of it: from 1 s to 30 s.
FIRST_PAUSE: Final = timedelta(seconds=2)
LONGEST_PAUSE: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Absence:
    """A target found away *times* in a row, and passed over until *until*, in seconds."""

    times: int
    until: float
    cause: str


class Order(NamedTuple):
    """Who is asked first, and who only for what none of those took."""

    present: list[str]
    passed_over: list[str]


def found_away(before: Absence | None, cause: str, *, now: float, chance: float) -> Absence:
    """Return the absence of a target that was found away, again where *before* is given.

    The pause doubles up to the longest; *chance*, from 0 to 1, spreads it over its second half.
    """
    times = 1 if before is None else before.times + 1
    grown = min(FIRST_PAUSE * 2 ** min(times - 1, 30), LONGEST_PAUSE)
    return Absence(times, now + grown.total_seconds() * (0.5 + 0.5 * chance), cause)


def is_passed_over(absence: Absence | None, now: float) -> bool:
    """Tell whether a target is passed over at *now*."""
    return absence is not None and now < absence.until


class Absences:
    """What one process knows of its targets' absences; safe from any thread and across fork.

    *monotonic* gives seconds that are never set back.
    """

    def __init__(self, monotonic: Callable[[], float], chance: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._chance = chance
        self._known: dict[str, Absence] = {}

    def in_order(self, names: Sequence[str]) -> Order:
        """Return *names* in their order, those that are passed over apart."""
        now = self._monotonic()
        away = [name for name in names if is_passed_over(self._known.get(name), now)]
        return Order([name for name in names if name not in away], away)

    def begin(self, name: str) -> Absence | None:
        """Return what was known of *name*, which is asked now.

        If its pause has just ended, the others go on passing it over: one finds out for all.
        """
        before = self._known.get(name)
        if before is not None:
            self._known[name] = self._next(before, before.cause)
        return before

    def is_away(self, name: str, before: Absence | None, cause: str) -> None:
        """Note that *name* is away; those who asked it at the same time count once."""
        self._known[name] = self._next(before, cause)

    def is_back(self, name: str) -> None:
        """Note that *name* answered."""
        self._known.pop(name, None)

    def causes(self, names: Sequence[str]) -> dict[str, str]:
        """Return why each of *names* that is away is so."""
        known = {name: self._known.get(name) for name in names}
        return {name: absence.cause for name, absence in known.items() if absence is not None}

    def _next(self, before: Absence | None, cause: str) -> Absence:
        return found_away(before, cause, now=self._monotonic(), chance=self._chance())
