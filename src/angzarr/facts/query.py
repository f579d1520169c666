"""Questions about facts, and the ports of what answers them and of what adds one (spec F1, F2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from angzarr.events.headers import time_of
from angzarr.facts.fact import Fact

#: The most facts on one page, and the most rows of counts and of costs.
LONGEST_PAGE: Final = 1000

_POSITION: Final = re.compile(r"[0-9]{1,18}")


class FactOrder(StrEnum):
    """By the time of the facts, or by their arrival in the store."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LATEST_ARRIVAL = "latest_arrival"
    ARRIVAL = "arrival"


class FactField(StrEnum):
    """What facts are counted and their costs added up by."""

    TYPE = "type"
    SUBTYPE = "subtype"
    TOOL = "tool"
    TENANT = "tenant"
    DAY = "day"  # in UTC, like "2026-11-29"
    ERROR_CODE = "error_code"
    EVENT = "event"
    ASSET = "asset"
    PERSON = "person"  # who acted
    CAUSE = "cause"  # of costs: the error code of the run that spent them; None: it did not fail
    OPERATION = "operation"  # of costs
    CONFIG = "config"  # the configuration and its version, like "pricing 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """Which facts; None: any. Times bound `at`: `since` ≤ it < `until`."""

    tenant_id: str | None = None
    entity_id: str | None = None
    tool_id: str | None = None
    event_id: str | None = None
    #: Any of these; empty: any event at all.
    event_ids: tuple[str, ...] = ()
    trace_id: str | None = None
    asset_id: str | None = None
    #: Who acted (`Fact.by`).
    by: str | None = None
    type: str | None = None
    subtype: str | None = None
    #: Of costs.
    currency: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Only facts of runs: errors, and what ended an event well (see `resolution.is_run`).
    only_runs: bool = False


EVERY: Final = FactQuery()
#: Fields of a query that the field of a fact of the same name must equal.
EQUAL: Final = (
    "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id", "by", "type",
    "subtype",
)  # fmt: skip


#: Fields that name so few facts that all of them may be counted.
_NARROW: Final = ("event_id", "entity_id", "trace_id")
_DAY: Final = timedelta(days=1)
#: There were no facts before; a day less is still a date.
_FIRST: Final = datetime(1900, 1, 1, tzinfo=UTC)


def of_last_day(wanted: FactQuery, now: datetime) -> FactQuery:
    """*wanted* from a day ago on, or a day before its end, where it says no beginning.

    One that names an event, entity or trace stays as it is. Counting a year takes seconds.
    """
    if wanted.since is not None or any(getattr(wanted, name) is not None for name in _NARROW):
        return wanted
    return replace(wanted, since=max(wanted.until or now, _FIRST) - _DAY)


class FactCursor(NamedTuple):
    """The place of one fact in every order: its time, and its number in the store."""

    at: datetime
    position: int

    def __str__(self) -> str:
        return f"{self.at.isoformat()}~{self.position}"


def read_fact_cursor(text: str) -> FactCursor:
    """The cursor that *text* was made from; raises ValueError if it is none."""
    at, _, position = text.rpartition("~")
    moment = time_of(at)
    if moment is None or not _POSITION.fullmatch(position):
        msg = f"{text!r} is not a cursor of a page of facts"
        raise ValueError(msg)
    return FactCursor(moment, int(position))


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPage:
    """Facts in the order asked for, each with its cursor; `more`: another page follows."""

    facts: tuple[Fact, ...] = ()
    cursors: tuple[FactCursor, ...] = ()
    more: bool = False

    @property
    def next(self) -> str:
        """The cursor behind which the next page begins; empty: there is none."""
        return str(self.cursors[-1]) if self.more and self.cursors else ""


def fact_page_of(rows: Sequence[tuple[FactCursor, Fact]], limit: int) -> FactPage:
    """The page of *rows*, which hold one more than *limit* if there is another page."""
    shown = rows[:limit]
    return FactPage(
        facts=tuple(fact for _, fact in shown),
        cursors=tuple(cursor for cursor, _ in shown),
        more=len(rows) > limit,
    )


class FactCount(NamedTuple):
    """How many facts have these `values`, in the order of the fields asked for."""

    values: tuple[str | None, ...]
    facts: int


class CostSum(NamedTuple):
    """What the cost facts of these `values` add up to, exactly, in one currency."""

    values: tuple[str | None, ...]
    currency: str
    amount: Decimal
    facts: int
    #: The part of both that runs spent which failed.
    failed: Decimal = Decimal(0)
    failed_facts: int = 0


#: What facts can be counted by.
COUNT_FIELDS: Final = tuple(field for field in FactField if field is not FactField.CAUSE)


def checked_count(by: Sequence[FactField]) -> Sequence[FactField]:
    """*by*, where facts can be counted by that; raises ValueError."""
    if FactField.CAUSE in by:
        msg = "facts are not counted by cause: it belongs to costs; count them by error_code"
        raise ValueError(msg)
    return by


class FactReader(Protocol):
    """Answers questions about facts. Every verb raises Unavailable where the store is away.

    A *limit* above `LONGEST_PAGE` counts as that.
    """

    def find(
        self,
        wanted: FactQuery,
        /,
        *,
        order: FactOrder = FactOrder.NEWEST,
        limit: int = 100,
        after: str = "",
    ) -> FactPage:
        """A page of the facts of *wanted*, behind the cursor *after*; ValueError if it is none."""

    def get(self, fact_id: str, /) -> Fact | None:
        """The fact of this id."""

    def history(self, event_id: str, tool_id: str | None, /, *, limit: int = 200) -> FactPage:
        """The last *limit* facts of the runs of an event by a handler, oldest first.

        `more` of the page: there are earlier ones.
        """

    def resolutions(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each error fact in *facts* that is resolved: the fact that resolved it, by its id.

        The rule is that of `resolution.resolve`.
        """

    def failures(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each cost fact in *facts* whose run failed: the error fact of that run, by its id."""

    def ends(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each fact in *facts* that begins an act: the fact that ended it, by its id.

        One that is missing has no end: its process is at it, or was killed.
        """

    def resolved_by(self, fact_id: str, /) -> Sequence[Fact]:
        """The error facts that this fact resolved, oldest first, at most `LONGEST_PAGE`."""

    def stats(
        self, wanted: FactQuery, by: Sequence[FactField], /, *, limit: int = LONGEST_PAGE
    ) -> Sequence[FactCount]:
        """The numbers of facts, most first; at most *limit* rows.

        Raises ValueError for `CAUSE`: only costs have one.
        """

    def costs(
        self, wanted: FactQuery, by: Sequence[FactField], /, *, limit: int = LONGEST_PAGE
    ) -> Sequence[CostSum]:
        """The sums of costs by currency, the largest of each first; at most *limit* rows."""

    def close(self) -> None:
        """Let connections go; safe to call twice."""


class FactBook(Protocol):
    """Adds one fact and waits until it is kept."""

    def add(self, fact: Fact, /) -> Fact | None:
        """Add *fact*; None once it is kept, or the fact that has its id already.

        Nothing is changed in the latter case. Raises Unavailable where the store is away; adding
        the same fact again is safe.
        """


class FactStore(FactReader, FactBook, Protocol):
    """Facts that can be asked and added to, in one place."""
