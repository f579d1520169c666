"""QuietHours: when the analysis worker replays nothing by itself, in the time of a place. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from angzarr.errors import ConfigurationError

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WINDOW: Final = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}(?:[-,][A-Za-z]{3})*) +)?"
    r"(?P<start>\d\d:\d\d) *- *(?P<end>\d\d:\d\d)"
)
_FORM: Final = "write 22:00-06:00, Sat,Sun 00:00-24:00 or Mon-Fri 08:00-18:00"
_MIDNIGHT: Final = time(0)
_DAY: Final = timedelta(days=1)
#: Windows that follow each other without a gap are one wait, of a week at most.
_LONGEST: Final = timedelta(days=8)


class Window(NamedTuple):
    """From `start` on each day of `days` (0: Monday) to the next time that it is `end`."""

    days: frozenset[int]
    start: time
    end: time

    def ends(self, day: date) -> datetime:
        """Return the local moment at which the window that begins on *day* ends."""
        last = day if self.start < self.end else day + _DAY
        return datetime.combine(last, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """Windows of local time, and the place whose time it is."""

    windows: tuple[Window, ...] = ()
    place: ZoneInfo

    def until(self, now: datetime) -> datetime | None:
        """Return when the quiet time that *now* is in ends; None: it is in none."""
        moment, latest = now, now + _LONGEST
        while (end := self._end_of(moment)) is not None and moment < latest:
            moment = end
        return moment.astimezone(UTC) if moment != now else None

    def _end_of(self, moment: datetime) -> datetime | None:
        """Return the latest end of the windows that *moment* is in.

        A clock that is put back repeats an hour: both are quiet if the window holds that hour.
        """
        local = moment.astimezone(self.place)
        wall = local.replace(tzinfo=None)
        ends = [
            window.ends(day)
            for window in self.windows
            for day in (wall.date() - _DAY, wall.date())
            if day.weekday() in window.days
            if datetime.combine(day, window.start) <= wall < window.ends(day)
        ]
        if not ends:
            return None
        end = max(ends).replace(tzinfo=self.place, fold=1).astimezone(UTC)
        return end if end > moment else None


def window_of(text: str) -> Window:
    """Return the window that *text* says; raises ConfigurationError with the form it wants."""
    found = _WINDOW.fullmatch(text.strip())
    days = _days(found["days"]) if found else None
    start, end = (_time(found[part]) if found else None for part in ("start", "end"))
    if start is None or end is None or not days:
        msg = f"these quiet hours cannot be read: {_FORM}"
        raise ConfigurationError(msg)
    return Window(days, start, end)


def place_of(name: str) -> ZoneInfo:
    """Return the place called *name*; raises ConfigurationError if the tz database has none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = "unknown timezone: use one like Europe/Berlin or UTC"
        raise ConfigurationError(msg) from None


def _time(text: str) -> time | None:
    hours, minutes = int(text[:2]), int(text[3:])
    if (hours, minutes) == (24, 0):
        return _MIDNIGHT
    return time(hours, minutes) if hours < 24 and minutes < 60 else None  # noqa: PLR2004 - a day


def _days(text: str | None) -> frozenset[int]:
    """Return the weekdays of ``Mon-Fri,Sun``; none at all where a name is unknown."""
    if text is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        names = [name.capitalize() for name in part.split("-")]
        if len(names) > 2 or not set(names) <= set(_DAYS):  # noqa: PLR2004 - first and last
            return frozenset()
        first, last = _DAYS.index(names[0]), _DAYS.index(names[-1])
        found.update((first + step) % 7 for step in range((last - first) % 7 + 1))
    return frozenset(found)
