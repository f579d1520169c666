"""How many facts a second the relay moves from where claims are to the database."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import psycopg
from harness import servers
from harness.figure import Figure, Measured, NotMeasured

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.sink import SqlFactSink
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_text
from angzarr.facts.outbox import FactOutbox
from angzarr.facts.relay import FactRelay
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import open_claims

FACTS = int(os.environ.get("BENCH_MOVED_FACTS", "50000"))
RUNS = 5
_AT_ONCE = 500


class _Alone:
    """The duty of the only process."""

    def is_ours(self) -> bool:
        return True

    def end(self) -> None:
        """Nothing is held."""


def measure() -> Measured:
    """Move as many facts as wait, several times, each into a fresh table."""
    return Measured(
        values=[_rate() for _ in range(RUNS)],
        detail={
            "facts_a_run": FACTS,
            "bytes_a_fact": len(_line(0)),
            "claims": f"Redis {servers.redis_version()}",
            "facts": "PostgreSQL",
            "relays": 1,
        },
    )


def _rate() -> float:
    with servers.redis_store() as store, servers.database() as url:
        settings = Settings(store=store.url, prefix=store.prefix)
        outbox = open_claims(settings, store.url).outbox
        for first in range(0, FACTS, _AT_ONCE):
            outbox.put([_line(number) for number in range(first, first + _AT_ONCE)])
        sink = SqlFactSink(build_engine(url))
        try:
            sink.write([])
            seconds = _moved(outbox, sink)
        finally:
            sink.close()
        _check(url)
    return FACTS / seconds


def _moved(outbox: FactOutbox, sink: SqlFactSink) -> float:
    """Seconds until the outbox is empty, counted from the first fact: it makes the table."""
    relay = FactRelay(outbox=outbox, sink=sink, duty=_Alone(), chance=lambda: 0.5)
    relay.turn()
    already, began = relay.counts.moved, time.perf_counter()
    while relay.counts.moved < FACTS:
        before = relay.counts.moved
        relay.turn()
        if relay.counts.moved == before:
            msg = f"the relay stopped after {before} facts: {relay.trouble()}"
            raise NotMeasured(msg)
    return (time.perf_counter() - began) * FACTS / (FACTS - already)


def _check(url: str) -> None:
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql")) as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM facts").fetchall()
    if found != FACTS:
        msg = f"{found} of {FACTS} facts are in the database"
        raise NotMeasured(msg)


def _line(number: int) -> str:
    """A fact as a delivery writes it."""
    return fact_text(
        Fact(
            id=f"{number:032x}:handled",
            type="lifecycle",
            subtype="handled",
            at=datetime.now(UTC),
            tenant_id=f"tenant-{number % 100}",
            entity_id=f"root-{number % 1000}",
            tool_id=f"shop.handler_{number % 60}",
            event_id=f"event-{number}",
            trace_id=f"{number:032x}",
            data={
                "outcome": "handled",
                "event_type": "OrderPlaced",
                "message_id": f"{number:032x}",
                "correlation_id": f"order-{number}",
                "retry_attempt": 1,
                "replay": 0,
                "duration_ms": 12.5,
            },
        )
    )


FIGURES = (
    Figure(
        key="facts_per_second",
        title="facts that one relay moves into PostgreSQL",
        unit="facts/s",
        aim="≥ 10000",
        against="nothing: a fleet may write no more events a second than this for long",
        how=(
            "So many facts as a delivery writes wait in the outbox of Redis. One relay, in one"
            " process, moves them: it reads them, writes them to the table with all its indexes,"
            " and removes them. Every fact must be in the table at the end."
        ),
        measure=measure,
    ),
)
