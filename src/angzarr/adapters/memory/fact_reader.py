"""Facts of this process, asked; for tests and for a look inside a demo (spec F1)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from itertools import islice
from typing import Any, Final, NamedTuple

from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.facts.cost import exact_sum
from angzarr.facts.fact import Fact
from angzarr.facts.query import (
    EQUAL,
    EVERY,
    LONGEST_PAGE,
    CostSum,
    FactCount,
    FactCursor,
    FactField,
    FactOrder,
    FactPage,
    FactQuery,
    checked_count,
    fact_page_of,
    read_fact_cursor,
)
from angzarr.facts.resolution import (
    ERROR,
    WorkEnding,
    begins_act,
    cause_of,
    endings_of,
    ends_of,
    failures_of,
    is_run,
    resolve,
    resolves_any,
)

_Row = tuple[FactCursor, Fact]

_BY_TIME: Final = frozenset({FactOrder.NEWEST, FactOrder.OLDEST})
_BACKWARD: Final = frozenset({FactOrder.NEWEST, FactOrder.LATEST_ARRIVAL})


class MemoryFactReader:
    """Fulfils `FactReader` and `FactBook` for the facts of *log*."""

    def __init__(self, log: MemoryFactLog) -> None:
        self._log = log

    def find(
        self,
        wanted: FactQuery,
        /,
        *,
        order: FactOrder = FactOrder.NEWEST,
        limit: int = 100,
        after: str = "",
    ) -> FactPage:
        """A page of facts."""
        rows = sorted(self._rows(wanted), key=_key(order), reverse=order in _BACKWARD)
        if after:
            behind = _key(order)((read_fact_cursor(after), _NONE))
            backward = order in _BACKWARD
            rows = [
                row
                for row in rows
                if (_key(order)(row) < behind if backward else _key(order)(row) > behind)
            ]
        limit = min(limit, LONGEST_PAGE)
        return fact_page_of(rows[: limit + 1], limit)

    def get(self, fact_id: str, /) -> Fact | None:
        """The fact of this id."""
        return next((one for one in self._log.read() if one.id == fact_id), None)

    def history(self, event_id: str, tool_id: str | None, /, *, limit: int = 200) -> FactPage:
        """The last facts of the runs of an event by a handler, oldest first."""
        limit = min(limit, LONGEST_PAGE)
        wanted = FactQuery(event_id=event_id, only_runs=True)
        rows = sorted(self._rows(wanted), key=_key(FactOrder.OLDEST))
        theirs = [row for row in rows if row[1].tool_id == tool_id]
        page = fact_page_of(theirs[-limit:], limit)
        return FactPage(facts=page.facts, cursors=page.cursors, more=len(theirs) > limit)

    def resolutions(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each error fact that is resolved: the fact that resolved it."""
        ids = {one.id for one in facts}
        able = [one for one in self._oldest_first() if resolves_any(one)]
        return resolve(facts, [one for one in able if one.resolves in ids], self._endings(able))

    def failures(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each cost fact whose run failed: its error fact."""
        return failures_of(facts, [one for one in self._log.read() if one.type == ERROR])

    def ends(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each fact that begins an act: the fact that ended it."""
        begun = {one.id: one for one in facts if begins_act(one)}
        naming = [one for one in self._oldest_first() if one.resolves in begun]
        return ends_of(begun.values(), naming)

    def resolved_by(self, fact_id: str, /) -> Sequence[Fact]:
        """The error facts that this fact resolved."""
        errors = [one for one in self._oldest_first() if one.type == ERROR]
        found = self.resolutions(errors)
        theirs = (one for one in errors if one.id in found and found[one.id].id == fact_id)
        return list(islice(theirs, LONGEST_PAGE))

    def stats(
        self, wanted: FactQuery, by: Sequence[FactField], /, *, limit: int = LONGEST_PAGE
    ) -> Sequence[FactCount]:
        """The numbers of facts, most first."""
        checked_count(by)
        counts = Counter(_values(fact, by) for _, fact in self._rows(wanted))
        found = [FactCount(values, number) for values, number in counts.most_common()]
        return found[: min(limit, LONGEST_PAGE)]

    def costs(
        self, wanted: FactQuery, by: Sequence[FactField], /, *, limit: int = LONGEST_PAGE
    ) -> Sequence[CostSum]:
        """The sums of costs by currency."""
        rows = self._rows(wanted)
        failures = self.failures([fact for _, fact in rows])
        sums: defaultdict[tuple[tuple[str | None, ...], str], list[_Spent]] = defaultdict(list)
        for _, fact in rows:
            if fact.cost is not None:
                failure = failures.get(fact.id)
                values = _values(fact, by, failure)
                sums[values, fact.cost.currency].append(_Spent(fact.cost.amount, failure))
        found = [_cost_sum(values, currency, spent) for (values, currency), spent in sums.items()]
        found.sort(key=lambda one: (one.currency, -one.amount))
        return found[: min(limit, LONGEST_PAGE)]

    def add(self, fact: Fact, /) -> Fact | None:
        """Add *fact*, or return the one that has its id."""
        return self._log.add(fact)

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _rows(self, wanted: FactQuery) -> list[_Row]:
        numbered = enumerate(self._log.read(), 1)
        return [
            (FactCursor(fact.at.astimezone(UTC), number), fact)
            for number, fact in numbered
            if _fits(fact, wanted)
        ]

    def _oldest_first(self) -> list[Fact]:
        return [fact for _, fact in sorted(self._rows(EVERY), key=_key(FactOrder.OLDEST))]

    def _endings(self, able: Sequence[Fact]) -> list[WorkEnding]:
        by_id = {one.id: one for one in self._log.read() if one.type == ERROR}
        return [end for one in able for end in endings_of(one, by_id.get(one.resolves or ""))]


_NONE: Final = Fact(id="", type="", subtype="", at=datetime.min.replace(tzinfo=UTC))


def _key(order: FactOrder) -> Callable[[_Row], Any]:
    if order in _BY_TIME:
        return lambda row: row[0]
    return lambda row: row[0].position


def _fits(fact: Fact, wanted: FactQuery) -> bool:
    asked = ((getattr(wanted, name), getattr(fact, name)) for name in EQUAL)
    return (
        all(value is None or value == there for value, there in asked)
        and wanted.currency in {None, fact.cost and fact.cost.currency}
        and (wanted.since is None or wanted.since <= fact.at)
        and (wanted.until is None or fact.at < wanted.until)
        and (not wanted.only_runs or is_run(fact))
        and (not wanted.event_ids or fact.event_id in wanted.event_ids)
    )


def _values(
    fact: Fact, by: Sequence[FactField], failure: Fact | None = None
) -> tuple[str | None, ...]:
    return tuple(
        cause_of(failure) if field is FactField.CAUSE else _value(fact, field) for field in by
    )


def _value(fact: Fact, field: FactField) -> str | None:
    match field:
        case FactField.TYPE | FactField.SUBTYPE:
            return str(getattr(fact, field.value))
        case FactField.DAY:
            return fact.at.astimezone(UTC).date().isoformat()
        case FactField.PERSON:
            return fact.by
        case FactField.ERROR_CODE | FactField.OPERATION:
            said = fact.data.get(field.value)
            return None if said is None else str(said)
        case FactField.CONFIG:
            return fact.config_id and f"{fact.config_id} {fact.config_version or ''}"
        case _:
            value: str | None = getattr(fact, f"{field.value}_id")
            return value


class _Spent(NamedTuple):
    """An amount, and the error of the run that spent it."""

    amount: Decimal
    failure: Fact | None


def _cost_sum(values: tuple[str | None, ...], currency: str, spent: Sequence[_Spent]) -> CostSum:
    failed = [one.amount for one in spent if one.failure is not None]
    amount = _sum([one.amount for one in spent])
    return CostSum(values, currency, amount, len(spent), _sum(failed), len(failed))


def _sum(amounts: Sequence[Decimal]) -> Decimal:
    return reduce(exact_sum, amounts, Decimal(0))
