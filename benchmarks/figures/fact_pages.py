"""How long the slowest question about a day of a tenant or asset takes among a year of facts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import NamedTuple

from harness import servers
from harness.figure import Figure, Measured
from sqlalchemy import Engine, text

from angzarr.adapters.sql.engine.engine import build_engine, patient
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.adapters.sql.facts.tables import FACTS, facts
from angzarr.facts.query import FactField, FactQuery

FACTS_OF_A_YEAR = int(os.environ.get("BENCH_FACTS", "10000000"))
RUNS = int(os.environ.get("BENCH_RUNS", "7"))
YEAR, DAY = timedelta(days=365), timedelta(days=1)
BEGAN = datetime(2025, 11, 1, tzinfo=UTC)
_TENANTS = 100

#: Three facts an event: it fails twice and is handled, at a cost. A few tenants have most of them.
_FILL = text(
    """
    INSERT INTO facts (id, type, subtype, timestamp, tenant_id, entity_id, tool_id, event_id,
                       trace_id, asset_id, by, data, amount, currency)
    SELECT 'fact-' || n,
           CASE WHEN n % 30 = 29 THEN 'cost' WHEN n % 3 = 2 THEN 'lifecycle' ELSE 'error' END,
           CASE WHEN n % 30 = 29 THEN 'tool_usage' WHEN n % 3 = 2 THEN 'handled'
                WHEN n % 7 = 0 THEN 'external' ELSE 'transient' END,
           CAST(:began AS timestamptz) + n * CAST(:step AS interval),
           'tenant-' || floor(:tenants * power(share, 3)),
           'root-' || event % 100000, 'shop.handler_' || event % 60, 'event-' || event,
           md5(CAST(event AS text)), 'asset-' || floor(1000 * power(share, 3)),
           CASE WHEN n % 1000 = 5 THEN 'person-' || n % 50 END,
           json_build_object('outcome', 'retried', 'event_type', 'OrderPlaced',
                             'message_id', md5(CAST(n AS text)), 'retry_attempt', n % 3,
                             'error_code', 'HTTP_' || 500 + n % 4,
                             'error_message', 'the CRM did not answer within 3 s'),
           CASE WHEN n % 30 = 29 THEN 0.0125 END, CASE WHEN n % 30 = 29 THEN 'EUR' END
    FROM (SELECT n, n / 3 AS event,
                 (hashint8(n / 3) & 2147483647) / 2147483648.0 AS share
          FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n) AS numbered
    """
)
_STEP = 500_000


class Filled(NamedTuple):
    """A database with a year of facts."""

    engine: Engine
    seconds: float
    gigabytes: float
    version: str


@contextmanager
def filled(count: int) -> Iterator[Filled]:
    """Lend a PostgreSQL database with so many facts of one year."""
    with servers.database() as url:
        engine = build_engine(url)
        began = time.perf_counter()
        try:
            FACTS.make_ready(engine)
            with patient(engine) as slow:
                _fill(slow, count)
                with slow.connect() as connection:
                    size = connection.scalar(text("SELECT pg_total_relation_size('facts')"))
                    version = connection.scalar(text("SHOW server_version"))
            seconds = time.perf_counter() - began
            yield Filled(engine, seconds, float(size or 0) / 1e9, str(version).split()[0])
        finally:
            engine.dispose()


def _fill(engine: Engine, count: int) -> None:
    """Write so many facts; indexes are made after them, which is much faster."""
    options = {"began": BEGAN, "step": YEAR / count, "tenants": _TENANTS}
    with engine.connect() as connection:
        with connection.begin():
            for index in facts.indexes:
                index.drop(connection)
        for first in range(0, count, _STEP):
            last = min(first + _STEP, count) - 1
            with connection.begin():
                connection.execute(_FILL, options | {"first": first, "last": last})
        with connection.begin():
            connection.execute(text("SET LOCAL maintenance_work_mem = '512MB'"))
            for index in facts.indexes:
                index.create(connection)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE facts"))


def questions(reader: SqlFactReader) -> dict[str, Callable[[], int]]:
    """Return each question about a tenant or asset and a day; its answer is how much was found."""
    day = BEGAN + 200 * DAY
    large = FactQuery(tenant_id="tenant-0", since=day, until=day + DAY)
    small = FactQuery(tenant_id="tenant-97", since=day, until=day + DAY)

    asset, person = FactQuery(asset_id="asset-0"), FactQuery(by="person-5")
    worked_on = replace(asset, since=day, until=day + DAY)

    def page(wanted: FactQuery) -> int:
        found = reader.find(wanted, limit=100)
        return len(found.facts) + len(reader.resolutions(found.facts))

    by = [FactField.TYPE, FactField.SUBTYPE, FactField.TOOL]
    return {
        "page of a large tenant": lambda: page(large),
        "page of a small tenant": lambda: page(small),
        "last page of a large tenant": lambda: len(
            reader.find(large, limit=100, after=f"{(day + DAY / 100).isoformat()}~9").facts
        ),
        "counts of a large tenant": lambda: len(reader.stats(large, by)),
        "counts by error code": lambda: len(reader.stats(large, [FactField.ERROR_CODE])),
        "costs of a large tenant": lambda: len(reader.costs(large, [FactField.TOOL])),
        "page of a day of an asset": lambda: page(worked_on),
        "page of an asset": lambda: page(asset),
        "page of a rare asset": lambda: page(FactQuery(asset_id="asset-997")),
        "counts of an asset": lambda: len(reader.stats(worked_on, by)),
        "page of a person": lambda: page(person),
        "one fact": lambda: int(reader.get("fact-4999999") is not None),
        "runs of one event": lambda: len(reader.history("event-100", "shop.handler_40").facts),
    }


def measure() -> Measured:
    """Measure the median of each question; the slowest counts."""
    with filled(FACTS_OF_A_YEAR) as database:
        reader = SqlFactReader(database.engine)
        times, found = {}, {}
        for name, ask in questions(reader).items():
            found[name] = ask()
            times[name] = median(_ms(ask) for _ in range(RUNS))
    worst = max(times.items(), key=lambda one: one[1])
    return Measured(
        values=[worst[1]],
        detail={
            "facts": f"{FACTS_OF_A_YEAR:,}",
            "table": f"{database.gigabytes:.1f} GB, filled in {database.seconds:.0f} s",
            "server": f"PostgreSQL {database.version}",
            "slowest": worst[0],
            "runs_a_question": RUNS,
            **{
                name.replace(" ", "_"): f"{took:.1f} ms, {found[name]} rows"
                for name, took in times.items()
            },
        },
    )


def _ms(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) * 1000


FIGURES = (
    Figure(
        key="fact_day_ms",
        title="slowest question about a day of a tenant or asset in a year of facts",
        unit="ms",
        aim="≤ 200 ms",
        against="no counterpart: an absolute",
        how=(
            "PostgreSQL with ten million facts of one year: three of each event, which fails twice"
            " and is handled. Of one tenant and one day: a page of 100 with what resolved them, the"
            " last page, counts by type, subtype and handler, counts by error code, and the costs."
            " The tenant has a fifth of all facts; a small one is asked as well. The same of an"
            " asset that has a tenth of all facts, and pages of a rare asset and of a person. Each"
            " question several times, its median counts, and of those the slowest."
        ),
        measure=measure,
    ),
)
