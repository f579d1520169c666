"""Brake: a person stops replays, for every analysis worker at once (issue: the global brake).

    automatic   what begins by itself waits; replays that people ask for go on
    all         nothing is sent at all, replay jobs included

What is under way is answered as ever, and nothing is lost: it waits in the ledger.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.quiet_hours import QuietHours
from angzarr.analysis.ledger.transition import WAKES
from angzarr.runtime.text import printable

#: Pulls among which the first is looked for: one that is renewed each minute takes no time.
MOST_PULLS: Final = 550


class Scope(StrEnum):
    """What the brake holds."""

    NOTHING = "nothing"
    AUTOMATIC = "automatic"
    ALL = "all"


class Pull(NamedTuple):
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
    #: When it lets go by itself; None: somebody must release it.
    until: datetime | None = None
    #: Goes up with every move; 0: nobody ever moved it.
    revision: int = 0
    #: Who began what still holds, where that is an earlier pull than the last.
    first: Pull | None = None
    #: Others pulled before `first`, further back than is looked.
    earlier: bool = False

    def holds(self, now: datetime) -> Scope:
        """Return what it holds at *now*."""
        over = self.until is not None and self.until <= now
        return Scope.NOTHING if over else self.scope

    def said(self) -> str:
        """Say in words who pulled it and why."""
        last = str(self.pull)
        before = ", and by others before" if self.earlier else ""
        pulls = f"{self.first}{before}; then by {last}" if self.first else last
        return printable(f"the brake was pulled by {pulls}")

    @property
    def pull(self) -> Pull:
        """The last pull of it."""
        return Pull(self.by, self.why, self.at)


class BrakeMoved(Exception):
    """Somebody moved the brake after it was looked at; nothing was done."""


#: The weaker first.
_ORDER: Final = (Scope.NOTHING, Scope.AUTOMATIC, Scope.ALL)


def moved(
    before: BrakeState, asked: BrakeState, now: datetime, seen: int | None = None
) -> BrakeState:
    """Return how the brake stands once somebody *asked* for it; only a release lets go.

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
    """Return the first of *states*, which come newest first, with who began what it holds.

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
    """Return in which statuses entries sleep on at *now*: nothing is sent for them."""
    if state.holds(now) is Scope.ALL:
        return WAKES - {Status.FAILED}
    return frozenset({Status.WAITING}) if why_not_by_itself(state, quiet, now) else frozenset()


class Brake(Protocol):
    """The brake of a ledger. Every verb raises LedgerUnavailable when the database is away."""

    @abstractmethod
    def state(self) -> BrakeState:
        """Return how it stands, see `standing`."""

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
        """Return how each move left it, the last *limit* of them, oldest first."""


def why_not_by_itself(state: BrakeState, quiet: QuietHours, now: datetime) -> str:
    """Return in one sentence why nothing may begin by itself at *now*, or an empty string."""
    if state.holds(now) is not Scope.NOTHING:
        return state.said()
    if end := quiet.until(now):
        return f"quiet hours until {end.astimezone(quiet.place):%Y-%m-%d %H:%M %Z}"
    return ""


def why_not_now(state: BrakeState, now: datetime) -> str:
    """Return why a person's wish is refused at *now*, and what to do, or an empty string."""
    why = why_not_at_all(state, now)
    return f"{why}: release it first (`angzarr dlq brake release`)" if why else ""


def why_not_at_all(state: BrakeState, now: datetime) -> str:
    """Return in one sentence why nothing may be sent at *now*, or an empty string."""
    return state.said() if state.holds(now) is Scope.ALL else ""
