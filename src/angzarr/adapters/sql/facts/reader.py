"""Facts in SQL, asked and added one at a time (spec F1, F2); `queries` has the statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection, Engine

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.facts import queries
from angzarr.adapters.sql.facts.rows import key_of, row_of
from angzarr.adapters.sql.facts.tables import FACTS, facts
from angzarr.facts.fact import Fact
from angzarr.facts.query import (
    LONGEST_PAGE,
    CostSum,
    FactCount,
    FactField,
    FactOrder,
    FactPage,
    FactQuery,
    checked_count,
    read_fact_cursor,
)
from angzarr.facts.resolution import (
    COST,
    ERROR,
    begins_act,
    ends_of,
    failures_of,
    resolve,
    resolves_any,
    work_of,
)


class SqlFactReader:
    """Fulfils `FactReader` and `FactBook` on the table ``facts``. Safe to use from threads."""

    def __init__(
        self,
        database: Engine | str,
        *,
        migrate: bool = True,
        close: Callable[[], None] | None = None,
    ) -> None:
        engine = build_engine(database) if isinstance(database, str) else database
        self._database = SchemaDatabase(FACTS, engine, migrate=migrate, close=close)
        new = insert_into(engine, facts).on_conflict_do_nothing(index_elements=["id"])
        self._insert = new.returning(facts.c.position)

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
        behind = read_fact_cursor(after) if after else None
        most = min(limit, LONGEST_PAGE)
        return self._database.read(
            lambda one: queries.read_facts(one, wanted, order, most, behind),
        )

    def get(self, fact_id: str, /) -> Fact | None:
        """The fact of this id."""
        return self._database.read(lambda one: queries.fact_by(one, key_of(fact_id)))

    def history(self, event_id: str, tool_id: str | None, /, *, limit: int = 200) -> FactPage:
        """The last facts of the runs of an event by a handler, oldest first."""
        work, most = (event_id, tool_id), min(limit, LONGEST_PAGE)
        return self._database.read(lambda one: queries.read_history(one, work, most))

    def resolutions(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each error fact that is resolved: the fact that resolved it."""
        return self._database.read(lambda one: _resolutions(one, facts))

    def failures(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each cost fact whose run failed: its error fact."""
        costs = [one for one in facts if one.type == COST]
        if not costs:
            return {}
        return failures_of(costs, self._database.read(lambda c: queries.errors_of_runs(c, costs)))

    def ends(self, facts: Sequence[Fact], /) -> Mapping[str, Fact]:
        """Of each fact that begins an act: the fact that ended it."""
        begun = {one.id: one for one in facts if begins_act(one)}
        if not begun:
            return {}
        naming = self._database.read(lambda one: queries.naming_facts(one, list(begun)))
        return ends_of(begun.values(), naming)

    def resolved_by(self, fact_id: str, /) -> Sequence[Fact]:
        """The error facts that this fact resolved."""
        return self._database.read(lambda one: _resolved_by(one, key_of(fact_id)))

    def stats(
        self, wanted: FactQuery, by: Sequence[FactField], /, *, limit: int = LONGEST_PAGE
    ) -> Sequence[FactCount]:
        """The numbers of facts, most first."""
        most, fields = min(limit, LONGEST_PAGE), checked_count(by)
        return self._database.read(lambda one: queries.count_facts(one, wanted, fields, most))

    def costs(
        self, wanted: FactQuery, by: Sequence[FactField], /, *, limit: int = LONGEST_PAGE
    ) -> Sequence[CostSum]:
        """The sums of costs by currency."""
        most = min(limit, LONGEST_PAGE)
        return self._database.read(lambda one: queries.sum_costs(one, wanted, by, most))

    def add(self, fact: Fact, /) -> Fact | None:
        """Add *fact*, or return the one that has its id; a second try tells of the first."""
        row = row_of(fact)

        def step(connection: Connection) -> Fact | None:
            if connection.scalar(self._insert, row) is not None:
                return None
            return queries.fact_by(connection, row["id"])

        return self._database.write(step)

    def close(self) -> None:
        """Let the engine go."""
        self._database.close()


def _resolutions(connection: Connection, found: Sequence[Fact]) -> Mapping[str, Fact]:
    errors = [one for one in found if one.type == ERROR]
    naming = queries.naming_facts(connection, [one.id for one in errors])
    return resolve(errors, naming, queries.endings_in(connection, errors))


def _resolved_by(connection: Connection, key: str) -> list[Fact]:
    fact = queries.fact_by(connection, key)
    if fact is None or not resolves_any(fact):
        return []
    named = None if fact.resolves is None else queries.fact_by(connection, fact.resolves)
    found = {} if named is None else {named.id: named}
    for about in filter(None, (fact, named)):
        if work := work_of(about):
            errors = queries.errors_until(connection, work, fact, LONGEST_PAGE)
            found |= {one.id: one for one in errors}
    resolved = _resolutions(connection, list(found.values()))
    theirs = [one for one in found.values() if one.id in resolved and resolved[one.id].id == key]
    return sorted(theirs, key=lambda one: one.at)[:LONGEST_PAGE]
