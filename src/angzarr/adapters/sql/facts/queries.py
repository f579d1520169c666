"""Questions to the table of facts: pages, what resolved what, counts and sums (spec F1, F2).

Pages are read from an index in their order and begin behind the last fact of the page before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    RowMapping,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    or_,
    select,
)

from angzarr.adapters.sql.engine.statements import among
from angzarr.adapters.sql.facts.rows import fact_of
from angzarr.adapters.sql.facts.tables import facts
from angzarr.adapters.sql.ledger.column_types import stored_name
from angzarr.facts.cost import exact_sum
from angzarr.facts.fact import Fact
from angzarr.facts.query import (
    EQUAL,
    CostSum,
    FactCount,
    FactCursor,
    FactField,
    FactOrder,
    FactPage,
    FactQuery,
    fact_page_of,
)
from angzarr.facts.resolution import (
    ENDED_WELL,
    ERROR,
    FAILED_RUNS,
    LIFECYCLE,
    OF_RUN,
    UNKNOWN_CODE,
    Work,
    WorkEnding,
    endings_of,
    work_of,
)

_AT: Final = facts.c.timestamp
_PLACE: Final = facts.c.position
_COLUMNS: Final = {
    FactField.TYPE: facts.c.type,
    FactField.SUBTYPE: facts.c.subtype,
    FactField.TOOL: facts.c.tool_id,
    FactField.TENANT: facts.c.tenant_id,
    FactField.EVENT: facts.c.event_id,
    FactField.ASSET: facts.c.asset_id,
    FactField.PERSON: facts.c.by,
}
#: Fields that few facts share, the fewest first: their index is always the one to read.
_RARE: Final = ("event_id", "trace_id", "entity_id")
#: How a sum of amounts is called in SQLite, which has no exact numbers.
_SUM: Final = "angzarr_exact_sum"


def read_facts(
    connection: Connection,
    wanted: FactQuery,
    order: FactOrder,
    limit: int,
    behind: FactCursor | None,
) -> FactPage:
    """A page of facts."""
    events = _of_events(connection, wanted)
    page = select(facts).where(*conditions_of(wanted), *events).limit(limit + 1)
    page = page.order_by(*_ordered(order))
    if behind is not None:
        page = page.where(_follows(order, behind))
    return page_of(connection.execute(page).mappings().all(), limit)


def page_of(rows: Sequence[RowMapping], limit: int) -> FactPage:
    """The page of *rows*."""
    return fact_page_of(
        [(FactCursor(row["timestamp"], row["position"]), fact_of(row)) for row in rows], limit
    )


def read_history(connection: Connection, work: Work, limit: int) -> FactPage:
    """The last facts of the runs of *work*, oldest first; `more`: there are earlier ones."""
    newest = _of_work(work).where(_is_run()).order_by(*_ordered(FactOrder.NEWEST)).limit(limit + 1)
    rows = connection.execute(newest).mappings().all()
    page = page_of(rows[:limit][::-1], limit)
    return FactPage(facts=page.facts, cursors=page.cursors, more=len(rows) > limit)


def conditions_of(wanted: FactQuery) -> list[ColumnElement[bool]]:
    """The conditions of *wanted*."""
    asked = {name: value for name in EQUAL if (value := getattr(wanted, name)) is not None}
    leads: str | None = next((name for name in _RARE if name in asked), None)
    if wanted.event_ids:
        leads = "event_ids"
    found = [
        _equals(facts.c[name], value, leads=leads in {None, name}) for name, value in asked.items()
    ]
    if wanted.currency is not None:
        found.append(facts.c.currency == stored_name(wanted.currency))
    if wanted.since is not None:
        found.append(wanted.since <= _AT)
    if wanted.until is not None:
        found.append(wanted.until > _AT)
    if wanted.only_runs:
        found.append(_is_run())
    return found


def _equals(column: Column[Any], value: str, *, leads: bool) -> ColumnElement[bool]:
    """The condition that *column* is *value*; its index is not for it unless it *leads*.

    Few facts are of one event. A planner may prefer an index of the handler, of which there are
    millions of facts, because that one is in the order of the page.
    """
    name = stored_name(value)
    return (column if leads or not name else func.coalesce(column, "")) == name


def _of_events(connection: Connection, wanted: FactQuery) -> list[ColumnElement[bool]]:
    if not wanted.event_ids:
        return []
    return [among(connection, facts.c.event_id, map(stored_name, wanted.event_ids))]


def _is_run() -> ColumnElement[bool]:
    return or_(facts.c.type == ERROR, _ends_well())


def _ends_well() -> ColumnElement[bool]:
    return and_(facts.c.type == LIFECYCLE, facts.c.subtype.in_(ENDED_WELL))


def _of_work(work: Work) -> Select[Any]:
    event_id, tool_id = work
    tool = facts.c.tool_id
    theirs = tool.is_(None) if tool_id is None else _equals(tool, tool_id, leads=False)
    return select(facts).where(facts.c.event_id == stored_name(event_id), theirs)


def _ordered(order: FactOrder) -> Sequence[ColumnElement[Any]]:
    match order:
        case FactOrder.NEWEST:
            return _AT.desc(), _PLACE.desc()
        case FactOrder.OLDEST:
            return _AT, _PLACE
        case FactOrder.LATEST_ARRIVAL:
            return (_PLACE.desc(),)
        case FactOrder.ARRIVAL:
            return (_PLACE,)


def _follows(order: FactOrder, behind: FactCursor) -> ColumnElement[bool]:
    """The condition that a fact comes after *behind*; its first part is what an index can use."""
    at, place = behind
    match order:
        case FactOrder.NEWEST:
            return and_(at >= _AT, or_(at > _AT, place > _PLACE))
        case FactOrder.OLDEST:
            return and_(at <= _AT, or_(at < _AT, place < _PLACE))
        case FactOrder.LATEST_ARRIVAL:
            return place > _PLACE
        case FactOrder.ARRIVAL:
            return place < _PLACE


def naming_facts(connection: Connection, ids: Sequence[str]) -> list[Fact]:
    """The facts that name one of these error facts, oldest first."""
    if not ids:
        return []
    found = select(facts).where(among(connection, facts.c.resolves, ids), facts.c.type != ERROR)
    return _facts_of(connection, found)


def endings_in(connection: Connection, errors: Sequence[Fact]) -> list[WorkEnding]:
    """The endings of the work of *errors*, oldest first."""
    events = {work[0] for one in errors if (work := work_of(one)) is not None}
    if not events:
        return []
    by_event = among(connection, facts.c.event_id, events)
    own = _facts_of(connection, select(facts).where(by_event, or_(_ends_well(), _names_one())))
    named = facts.alias("named")
    of_named = among(connection, named.c.event_id, events)
    through = (
        select(facts, named.c.event_id.label("of_event"), named.c.tool_id.label("of_tool"))
        .join(named, facts.c.resolves == named.c.id)
        .where(of_named, named.c.type == ERROR, facts.c.type != ERROR)
        .order_by(*_ordered(FactOrder.OLDEST))
    )
    found = [end for fact in own for end in endings_of(fact)]
    rows = connection.execute(through).mappings()
    found += [WorkEnding((row["of_event"], row["of_tool"]), fact_of(row)) for row in rows]
    return sorted(found, key=lambda one: one.fact.at)  # which keeps the order of arrival


def _names_one() -> ColumnElement[bool]:
    return and_(facts.c.resolves.is_not(None), facts.c.type != ERROR)


def errors_until(connection: Connection, work: Work, until: Fact, limit: int) -> list[Fact]:
    """The last *limit* error facts of *work* that are not newer than *until*, oldest first."""
    found = _of_work(work).where(facts.c.type == ERROR, until.at >= _AT)
    newest = found.order_by(*_ordered(FactOrder.NEWEST)).limit(limit)
    rows = connection.execute(newest).mappings().all()
    return [fact_of(row) for row in reversed(rows)]


def fact_by(connection: Connection, key: str) -> Fact | None:
    """The fact of this stored id."""
    row = connection.execute(select(facts).where(facts.c.id == key)).mappings().first()
    return None if row is None else fact_of(row)


def _facts_of(connection: Connection, found: Select[Any]) -> list[Fact]:
    rows = connection.execute(found.order_by(*_ordered(FactOrder.OLDEST))).mappings()
    return [fact_of(row) for row in rows]


def count_facts(
    connection: Connection, wanted: FactQuery, by: Sequence[FactField], limit: int
) -> list[FactCount]:
    """The numbers of facts, most first."""
    values = _values(connection, by)
    count = func.count()
    asked = (
        select(*values, count)
        .select_from(facts)
        .where(*conditions_of(wanted), *_of_events(connection, wanted))
        .group_by(*values)
        .order_by(count.desc(), *values)
        .limit(limit)
    )
    rows = connection.execute(asked)
    return [FactCount(tuple(row[:-1]), row[-1]) for row in rows if row[-1]]


def sum_costs(
    connection: Connection, wanted: FactQuery, by: Sequence[FactField], limit: int
) -> list[CostSum]:
    """The sums of costs by currency, the largest of each first."""
    own = [field for field in by if field is not FactField.CAUSE]
    costs = (
        select(*_values(connection, own), facts.c.amount, facts.c.currency, _cause(connection))
        .where(*conditions_of(wanted), *_of_events(connection, wanted))
        .where(facts.c.amount.is_not(None), facts.c.currency.is_not(None))
        .subquery()
    )
    values, currency = [costs.c[field.value] for field in by], costs.c.currency
    total, size = _total(connection, costs.c.amount)
    failed, _ = _total(connection, case((costs.c.cause.is_not(None), costs.c.amount)))
    asked = (
        select(*values, currency, total, func.count(), failed, func.count(costs.c.cause))
        .group_by(*values, currency)
        .order_by(currency, size.desc(), *values)
        .limit(limit)
    )
    return [_sum_of(tuple(row)) for row in connection.execute(asked)]


def _cause(connection: Connection) -> ColumnElement[Any]:
    """The error code of the run that a cost is of; NULL: it did not fail."""
    failure = facts.alias("failure")
    of_run = [
        _text_in(connection, failure.c.data, name) == _text_in(connection, facts.c.data, name)
        for name in OF_RUN
    ]
    code = func.coalesce(_text_in(connection, failure.c.data, "error_code"), UNKNOWN_CODE)
    found = (
        select(code)
        .where(failure.c.event_id == facts.c.event_id, failure.c.type == ERROR, *of_run)
        .where(failure.c.tool_id.is_not_distinct_from(facts.c.tool_id))
        .where(_text_in(connection, failure.c.data, "outcome").in_(FAILED_RUNS))
        .limit(1)
    )
    return found.correlate(facts).scalar_subquery().label(FactField.CAUSE.value)


def errors_of_runs(connection: Connection, costs: Sequence[Fact]) -> list[Fact]:
    """The error facts of runs of the events of *costs*."""
    events = {one.event_id for one in costs if one.event_id is not None}
    if not events:
        return []
    by_event = among(connection, facts.c.event_id, events)
    return _facts_of(connection, select(facts).where(by_event, facts.c.type == ERROR))


def _sum_of(row: Sequence[Any]) -> CostSum:
    *values, currency, total, count, failed, failures = row
    return CostSum(tuple(values), currency, Decimal(total), count, Decimal(failed or 0), failures)


def _values(connection: Connection, by: Sequence[FactField]) -> list[ColumnElement[Any]]:
    return [_value(connection, field).label(field.value) for field in by]


def _value(connection: Connection, field: FactField) -> ColumnElement[Any]:
    postgresql = connection.dialect.name == "postgresql"
    match field:
        case FactField.DAY if postgresql:
            return func.to_char(func.timezone("UTC", _AT), "YYYY-MM-DD")
        case FactField.DAY:
            return func.strftime("%Y-%m-%d", _AT, type_=Text)
        case FactField.ERROR_CODE | FactField.OPERATION:
            return _text_in(connection, facts.c.data, field.value)
        case FactField.CONFIG:
            return facts.c.config_id + " " + func.coalesce(facts.c.config_version, "")
        case _:
            return _COLUMNS[field]


def _text_in(
    connection: Connection, data: ColumnElement[Any], name: str
) -> ColumnElement[str | None]:
    if connection.dialect.name == "postgresql":
        return func.json_extract_path_text(data, name)
    return cast(func.json_extract(data, f"$.{name}"), Text)


def _total(
    connection: Connection, amount: ColumnElement[Any]
) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """The exact sum of *amount*, and what sums are put in order by; NULLs count for nothing."""
    if connection.dialect.name == "postgresql":
        total: ColumnElement[Any] = func.sum(amount)
        return total, total
    driver: Any = connection.connection.driver_connection
    lent: sqlite3.Connection = driver
    lent.create_aggregate(_SUM, 1, ExactSum)  # type: ignore[arg-type]  # a class that it calls
    total = getattr(func, _SUM)(amount, type_=Text)
    return total, cast(total, Float)


class ExactSum:
    """Adds amounts up that are texts, and rounds none of them."""

    def __init__(self) -> None:
        self._total = Decimal(0)

    def step(self, amount: str | None) -> None:
        """Add *amount*; None is nothing."""
        if amount is not None:
            self._total = exact_sum(self._total, Decimal(amount))

    def finalize(self) -> str:
        """The sum."""
        return f"{self._total:f}"
