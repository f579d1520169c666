"""Each question about facts reads an index, however many facts lie beside what it asks for."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from datetime import timedelta

import pytest
from sqlalchemy import event, text
from tests.conftest import own_database
from tests.contracts.facts import AT

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.adapters.sql.facts.tables import FACTS
from angzarr.facts.query import EVERY, FactField, FactOrder, FactQuery

FACTS_THERE = 30_000
FILL = """
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :most)
INSERT INTO facts (id, type, subtype, timestamp, tenant_id, entity_id, tool_id, event_id, trace_id,
                   resolves, asset_id, by, amount, currency, data)
SELECT 'f' || n, CASE n % 3 WHEN 0 THEN 'error' WHEN 1 THEN 'cost' ELSE 'lifecycle' END,
       CASE n % 3 WHEN 0 THEN 'transient' WHEN 1 THEN 'usage' ELSE 'handled' END,
       TIME, 't' || n % 200, 'r' || n % 5000, 'tool' || n % 300, 'e' || n / 3, 'x' || n / 3,
       CASE WHEN n % 300 = 2 THEN 'f' || n - 2 END,
       CASE WHEN n % 2 = 0 THEN 'asset' || n % 500 END,
       CASE WHEN n % 10 = 2 THEN 'p' || n % 500 END,
       CASE WHEN n % 3 = 1 THEN AMOUNT END, CASE WHEN n % 3 = 1 THEN 'EUR' END, '{}'
FROM numbers
"""
TIMES = {
    "postgresql": f"CAST('{AT.isoformat()}' AS timestamptz) + n * interval '1 minute'",
    "sqlite": f"strftime('%Y-%m-%d %H:%M:%f000', '{AT.replace(tzinfo=None)}', n || ' minutes')",
}
AMOUNTS = {"postgresql": "0.1", "sqlite": "'0.1'"}
DAY = FactQuery(since=AT + timedelta(days=3), until=AT + timedelta(days=4))


def fill(engine):
    FACTS.make_ready(engine)
    name = engine.dialect.name
    statement = FILL.replace("TIME", TIMES[name], 1).replace("AMOUNT", AMOUNTS[name], 1)
    statement = statement.replace(":most", str(FACTS_THERE - 1))
    with engine.begin() as connection:  # psycopg reads % as the beginning of a parameter
        connection.exec_driver_sql(
            statement.replace("%", "%%") if name == "postgresql" else statement
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def behind(reader, order):
    return str(reader.find(EVERY, order=order, limit=50).cursors[-1])


ASKED = {
    "newest": (lambda r: r.find(EVERY), "ix_facts_timestamp"),
    "page 2": (lambda r: r.find(EVERY, after=behind(r, FactOrder.NEWEST)), "ix_facts_timestamp"),
    "arrival": (
        lambda r: r.find(EVERY, order=FactOrder.ARRIVAL, after=behind(r, FactOrder.LATEST_ARRIVAL)),
        "key",
    ),
    "tenant": (lambda r: r.find(FactQuery(tenant_id="t7")), "ix_facts_by_tenant"),
    "tenant's day": (
        lambda r: r.find(FactQuery(tenant_id="t7", since=DAY.since, until=DAY.until)),
        "ix_facts_by_tenant",
    ),
    "asset": (lambda r: r.find(FactQuery(asset_id="asset8")), "ix_facts_by_asset"),
    "asset's day": (
        lambda r: r.find(FactQuery(asset_id="asset8", since=DAY.since, until=DAY.until)),
        "ix_facts_by_asset",
    ),
    "asset's counts": (
        lambda r: r.stats(
            FactQuery(asset_id="asset8", since=DAY.since, until=DAY.until), [FactField.TYPE]
        ),
        "ix_facts_by_asset",
    ),
    "person": (lambda r: r.find(FactQuery(by="p12")), "ix_facts_by_person"),
    "person's day": (
        lambda r: r.find(FactQuery(by="p12", since=DAY.since, until=DAY.until)),
        "ix_facts_by_person",
    ),
    "entity": (lambda r: r.find(FactQuery(entity_id="r7")), "ix_facts_by_entity"),
    "handler": (lambda r: r.find(FactQuery(tool_id="tool7")), "ix_facts_by_tool"),
    "event": (lambda r: r.find(FactQuery(event_id="e7")), "ix_facts_by_event"),
    "event and handler": (
        lambda r: r.find(FactQuery(event_id="e7", tool_id="tool21", type="error")),
        "ix_facts_by_event",
    ),
    "trace and tenant": (
        lambda r: r.stats(FactQuery(trace_id="x7", tenant_id="t21"), [FactField.TYPE]),
        "ix_facts_by_trace",
    ),
    "trace": (lambda r: r.find(FactQuery(trace_id="x7")), "ix_facts_by_trace"),
    "rare kind": (
        lambda r: r.find(FactQuery(type="error", subtype="poison"), order=FactOrder.OLDEST),
        "ix_facts_by_kind or ix_facts_by_subtype",
    ),
    "rare subtype": (lambda r: r.find(FactQuery(subtype="act_failed")), "ix_facts_by_subtype"),
    "day": (lambda r: r.find(DAY), "ix_facts_timestamp"),
    "one": (lambda r: r.get("f77"), "id"),
    "history": (lambda r: r.history("e7", "tool21"), "ix_facts_by_event"),
    "counts": (
        lambda r: r.stats(
            FactQuery(tenant_id="t7", since=DAY.since, until=DAY.until), [FactField.TYPE]
        ),
        "ix_facts_by_tenant",
    ),
    "costs": (
        lambda r: r.costs(
            FactQuery(tool_id="tool7", since=DAY.since, until=DAY.until), [FactField.DAY]
        ),
        "ix_facts_by_tool",
    ),
    "resolutions": (lambda r: r.resolutions(r.find(DAY, limit=50).facts), "ix_facts_by_event"),
    "resolved": (lambda r: r.resolved_by("f302"), "ix_facts_by_event"),
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def engine(request, tmp_path_factory):
    with ExitStack() as opened:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/facts.db"
        else:
            name = f"{request.getfixturevalue('session_name')}-fact-plans"
            url = opened.enter_context(own_database(name))
        engine = build_engine(url)
        opened.callback(engine.dispose)
        fill(engine)
        yield engine


@pytest.mark.parametrize("name", ASKED)
def test_no_question_reads_the_whole_table(engine, name):
    ask, index = ASKED[name]
    reader, heard = SqlFactReader(engine), []
    ask(reader)  # looks at the revision of the table

    def hear(_connection, _cursor, statement, parameters, *_rest):
        if "FROM facts" in statement:
            heard.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    try:
        ask(reader)
    finally:
        event.remove(engine, "before_cursor_execute", hear)
    assert heard
    look = {"sqlite": by_sqlite, "postgresql": by_postgresql}[engine.dialect.name]
    with engine.connect() as connection:
        used = {one for statement in heard for one in look(connection, *statement)}
    assert used.intersection(index.split(" or "))
    assert "whole table" not in used


def by_sqlite(connection, statement, parameters):
    """Yield the indexes that a statement uses."""
    for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
        if index := re.search(r"USING (?:COVERING )?INDEX (\w+)", row.detail):
            yield {"sqlite_autoindex_facts_1": "id"}.get(index[1], index[1])
        elif "INTEGER PRIMARY KEY" in row.detail or row.detail == "SCAN facts":
            yield "key"  # the table itself, in the order of its key
        elif "SCAN" in row.detail:
            yield "whole table"


def by_postgresql(connection, statement, parameters):
    """Yield the indexes that a statement uses."""
    found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    for step in steps_of(plan):
        if name := step.get("Index Name"):
            yield {"facts_pkey": "key", "facts_id_key": "id"}.get(name, name)
        if step["Node Type"] == "Seq Scan":
            yield "whole table"


def steps_of(plan):
    yield plan
    for one in plan.get("Plans", ()):
        yield from steps_of(one)
