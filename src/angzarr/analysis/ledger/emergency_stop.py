"""Brake and quiet hours: when no replay may begin, for every analysis worker at once. Pure.

    automatic   automatic replays wait; replays that people ask for go on
    all         nothing is sent at all, replay jobs included

Replays in flight finish normally, and nothing is lost: it waits in the ledger.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.transition import WAKES
from angzarr.errors import ConfigurationError
from angzarr.runtime.text import printable

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
        """The local moment at which the window that begins on *day* ends."""
        last = day if self.start < self.end else day + _DAY
        return datetime.combine(last, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """Windows of local time, and the place whose time it is."""

    windows: tuple[Window, ...] = ()
    place: ZoneInfo

    def until(self, now: datetime) -> datetime | None:
        """The end of the quiet time that *now* is in; None: it is in none."""
        moment, latest = now, now + _LONGEST
        while (end := self._end_of(moment)) is not None and moment < latest:
            moment = end
        return moment.astimezone(UTC) if moment != now else None

    def _end_of(self, moment: datetime) -> datetime | None:
        """The latest end of the windows that *moment* is in.

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
    """The window that *text* says; raises ConfigurationError with the form it wants."""
    found = _WINDOW.fullmatch(text.strip())
    days = _days(found["days"]) if found else None
    start, end = (_time(found[part]) if found else None for part in ("start", "end"))
    if start is None or end is None or not days:
        msg = f"these quiet hours cannot be read: {_FORM}"
        raise ConfigurationError(msg)
    return Window(days, start, end)


def place_of(name: str) -> ZoneInfo:
    """The place called *name*; raises ConfigurationError if the tz database has none."""
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
    """The weekdays of ``Mon-Fri,Sun``; none at all where a name is unknown."""
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


#: Pulls among which the first is looked for: one that is renewed each minute takes no time.
MOST_PULLS: Final = 550


class Scope(StrEnum):
    """What the brake holds."""

    NOTHING = "nothing"
    AUTOMATIC = "automatic"
    ALL = "all"


class BrakePull(NamedTuple):
    """Who pulled it, why and when."""

    by: str
    why: str
    at: datetime | None

    def __str__(self) -> str:
        return f"{self.by}: {self.why}" if self.why else self.by


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeState:
    """How the brake stands, who put it so, why and when. A new ledger's holds nothing."""

    scope: Scope = Scope.NOTHING
    by: str = ""
    why: str = ""
    at: datetime | None = None
    #: When it lets go by itself; None: a person must release it.
    until: datetime | None = None
    #: Goes up with every move; 0: it was never moved.
    revision: int = 0
    #: Who began what still holds, where that is an earlier pull than the last.
    first: BrakePull | None = None
    #: Others pulled before `first`, further back than is looked.
    earlier: bool = False

    def holds(self, now: datetime) -> Scope:
        """The kinds of replays that it holds at *now*."""
        over = self.until is not None and self.until <= now
        return Scope.NOTHING if over else self.scope

    def said(self) -> str:
        """Say in words who pulled it and why."""
        last = str(self.pull)
        before = ", and by others before" if self.earlier else ""
        pulls = f"{self.first}{before}; then by {last}" if self.first else last
        return printable(f"the brake was pulled by {pulls}")

    @property
    def pull(self) -> BrakePull:
        """The last pull of it."""
        return BrakePull(self.by, self.why, self.at)


class BrakeMoved(Exception):
    """The brake was moved after it was looked at; nothing was done."""


#: The weaker first.
_ORDER: Final = (Scope.NOTHING, Scope.AUTOMATIC, Scope.ALL)


def moved(
    before: BrakeState, asked: BrakeState, now: datetime, seen: int | None = None
) -> BrakeState:
    """The state of the brake after *asked*; only a release lets go.

    A pull never weakens one that holds: it holds what either does, until the later end. Raises
    BrakeMoved where *before* is not of the revision that was *seen* (None: any).
    """
    if seen not in {None, before.revision}:
        raise BrakeMoved
    holds = before.holds(now)
    if asked.scope is Scope.NOTHING or holds is Scope.NOTHING:
        return asked
    endless = before.until is None or asked.until is None
    ends = None if endless else max(filter(None, (before.until, asked.until)))
    return replace(asked, scope=max(holds, asked.scope, key=_ORDER.index), until=ends)


def standing(states: Iterable[BrakeState]) -> BrakeState:
    """The first of *states*, which come newest first, with who began what it holds.

    A pull goes on with an earlier one that held when it was made. No more are read than belong
    together, and of more than `MOST_PULLS` the oldest of these counts for the first.
    """
    before = iter(states)
    newest = first = next(before, BrakeState())
    if newest.scope is Scope.NOTHING:
        return newest
    for looked_at, one in enumerate(before, 1):
        if first.at is None or one.holds(first.at) is Scope.NOTHING:
            break
        if looked_at == MOST_PULLS:
            return replace(newest, first=first.pull, earlier=True)
        first = one
    return newest if first is newest else replace(newest, first=first.pull)


def asleep(state: BrakeState, quiet: QuietHours, now: datetime) -> frozenset[Status]:
    """The statuses in which entries sleep on at *now*: nothing is sent for them."""
    if state.holds(now) is Scope.ALL:
        return WAKES - {Status.FAILED}
    return frozenset({Status.WAITING}) if why_not_by_itself(state, quiet, now) else frozenset()


class Brake(Protocol):
    """The brake of a ledger. Every verb raises LedgerUnavailable when the database is away."""

    @abstractmethod
    def state(self) -> BrakeState:
        """The state of the brake, see `standing`."""

    @abstractmethod
    def put(
        self,
        scope: Scope,
        /,
        *,
        by: str,
        why: str = "",
        until: datetime | None = None,
        seen: int | None = None,
    ) -> BrakeState:
        """Pull it, or release it by `Scope.NOTHING`, as `moved` says; return how it stands.

        Raises BrakeMoved where its revision is not the one that was *seen* (None: any).
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""

    @abstractmethod
    def brake_history(self, limit: int, /) -> tuple[BrakeState, ...]:
        """The state after each of the last *limit* moves, oldest first."""


def why_not_by_itself(state: BrakeState, quiet: QuietHours, now: datetime) -> str:
    """Why nothing may begin by itself at *now*, in one sentence, or an empty string."""
    if state.holds(now) is not Scope.NOTHING:
        return state.said()
    if end := quiet.until(now):
        return f"quiet hours until {end.astimezone(quiet.place):%Y-%m-%d %H:%M %Z}"
    return ""


def why_not_now(state: BrakeState, now: datetime) -> str:
    """Why a person's wish is refused at *now*, and what to do, or an empty string."""
    why = why_not_at_all(state, now)
    return f"{why}: release it first (`angzarr dlq brake release`)" if why else ""


def why_not_at_all(state: BrakeState, now: datetime) -> str:
    """Why nothing may be sent at *now*, in one sentence, or an empty string."""
    return state.said() if state.holds(now) is Scope.ALL else ""


def brake_state_json(state: BrakeState) -> dict[str, Any]:
    """The state of the brake as a JSON object."""
    return {
        "scope": state.scope.value,
        "by": state.by,
        "why": state.why,
        "at": state.at.isoformat() if state.at else None,
        "until": state.until.isoformat() if state.until else None,
    }


def brake_json(state: BrakeState, now: datetime) -> dict[str, Any]:
    """The state of the brake at *now*, what it holds then, and who pulled it first."""
    told = None
    if first := state.first:
        at = first.at and first.at.isoformat()
        told = {"by": first.by, "why": first.why, "at": at, "earlier": state.earlier}
    return brake_state_json(state) | {"holds": state.holds(now).value, "first": told}
