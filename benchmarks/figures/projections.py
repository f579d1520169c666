"""Projections: what order costs, random histories with crashes, and how fast a rebuild is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from harness import servers
from harness.book import CHECKOUT
from harness.drain import DrainFailed, filled, handled
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import alternate, medians, middle_rate, ratios
from harness.private_redis import private_redis
from harness.site import PATIENCE, Load, Side, Site, site
from sqlalchemy import Engine, create_engine, text

from figures.sides import PAIRS, PREFETCH, prefetch_of

#: Fewer for a quick look while working on the code; the report tells how many there were.
AGGREGATES = int(os.environ.get("BENCH_AGGREGATES", "10000"))
EACH = int(os.environ.get("BENCH_EVENTS_EACH", "2"))
RUNS = int(os.environ.get("BENCH_ORDER_RUNS", "1000"))
EVENTS = AGGREGATES * EACH
PROCESSES = 4
#: Exit codes of a model that came to a verdict: everything is in order, something is not.
_WELL, _BROKEN = 0, 1

_PATHS = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
_TABLE = text(
    "CREATE TABLE totals (account text PRIMARY KEY, events integer NOT NULL, cents bigint NOT NULL)"
)
_SUMS = text("SELECT count(*), coalesce(sum(events), 0), coalesce(sum(cents), 0) FROM totals")


def measure_order() -> Measured:
    """Drain in turn, each run with a fresh Redis and a fresh database of PostgreSQL."""
    with servers.virtual_host() as letters:
        projection, plain, ordered = (
            _rate_of(letters, app, **more)
            for app, more in (
                ("workers.totals_projection", {}),
                ("workers.totals_handler", {}),
                ("workers.totals_handler", {"BENCH_ORDERED": "yes"}),
            )
        )
        ordered_rates: list[float] = []

        def theirs() -> float:
            rate = plain()
            ordered_rates.append(ordered())
            return rate

        pairs = alternate(projection, theirs, pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    by_handlers = [one / pair.theirs for one, pair in zip(ordered_rates[1:], pairs, strict=True)]
    return Measured(
        values=ratios(pairs),
        detail={
            "events_per_second_projection": round(middle.ours),
            "events_per_second_unordered_handler": round(middle.theirs),
            "events_per_second_ordered_handler": round(median(ordered_rates[1:])),
            "ordered_handler_ratio": round(median(by_handlers), 3),
            "events_a_run": f"{EVENTS:,}",
            "aggregates": f"{AGGREGATES:,}",
            "processes": PROCESSES,
            "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
            "store": "the same Redis",
            "database": "PostgreSQL without fsync, a fresh database for each run",
            "pool": f"prefork, {PROCESSES} children",
            "prefetch_multiplier": prefetch_of(),
        },
    )


def _rate_of(letters: str, app: str, **more: str) -> Callable[[], float]:
    def rate() -> float:
        with private_redis() as redis, servers.database() as database:
            environment = {
                "ANGZARR_STORE": redis,
                "ANGZARR_DLQ__BACKEND": "amqp",
                "ANGZARR_DLQ__AMQP_URL": letters,
                "ANGZARR_ORDERING__URL": database,
                "BENCH_AGGREGATES": str(AGGREGATES),
                **more,
            }
            load = Load(
                broker=redis, queue="bench", events=EVENTS,
                pool="prefork", concurrency=PROCESSES, prefetch=PREFETCH,
            )  # fmt: skip
            with site(Side(app=app, environment=environment), load) as at:
                return _drained(at, database)

    return rate


def _drained(at: Site, database: str) -> float:
    engine = create_engine(database)
    try:
        with engine.begin() as connection:
            connection.execute(_TABLE)
        stamps = filled(at)
        with at.worker() as worker:
            moments = handled(stamps, at, worker)
            _expect_all(engine)
        return middle_rate(moments)
    finally:
        engine.dispose()


def _expect_all(engine: Engine) -> None:
    """Wait until the read model has every event, once; refuse a rate without."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with engine.connect() as connection:
            found = tuple(map(int, connection.execute(_SUMS).one()))
        if found == (AGGREGATES, EVENTS, 7 * EVENTS):
            return
        if time.monotonic() > deadline or found[1] > EVENTS:
            msg = f"the read model has {found[1]} of {EVENTS} events"
            raise DrainFailed(msg)
        time.sleep(0.1)


def measure_model() -> Measured:
    """Play the runs; raises NotMeasured if they came to no verdict."""
    environment = {**os.environ, "PYTHONPATH": _PATHS}
    with servers.database() as url:
        command = [sys.executable, "-m", "tests.order_model", "--runs", str(RUNS), "--url", url]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, cwd=CHECKOUT
        )
    if done.returncode not in (_WELL, _BROKEN):
        raise NotMeasured(done.stderr[-2000:])
    told = json.loads(done.stdout.splitlines()[-1])
    return Measured(
        values=[told["kept"]], detail={**told, "lanes": "PostgreSQL", "read_model": "PostgreSQL"}
    )


FIGURES = (
    Figure(
        key="projection_ordered",
        title="a projection that takes the events of each aggregate in order, exactly once",
        unit="ratio",
        aim="≥ 0.7",
        against="the same statement in an unordered handler of ours, in a transaction of its own",
        how=(
            "Events are dealt to aggregates in turn and published first; then one worker with four"
            " prefork children drains them. Each adds to the row of its aggregate, by one statement"
            " on PostgreSQL. The projection does so in the transaction that moves the aggregate's"
            " lane and counts, in the same database; the unordered handler in one on its own pooled"
            " connection. Broker, claims, breaker, facts and all other guarantees are the same on"
            " both sides. The rate is that of the starts over the middle 98 %. A run counts only if"
            " the read model has every event once. `ordered handler`: the same handler with"
            ' `ordered_by="root"`, whose lane moves after it in a transaction of its own.'
        ),
        measure=measure_order,
    ),
    Figure(
        key="projection_model_runs",
        title="random histories with crashes after each of which every read model is right",
        unit="runs",
        aim="≥ 1000",
        against="nothing: it must hold after every run",
        how=(
            "Events of up to four aggregates are delivered to an ordered handler one at a time, in"
            " an order drawn by a seed, some as two messages; the process dies after steps that"
            " touch a store, the lanes or a queue; handlers fail, give up and are replayed, events"
            " are skipped by hand, and another delivery comes between a look and its run. Lanes and"
            " read model are in PostgreSQL. A run counts if nothing is lost, nothing has its"
            " effects twice, and no event was handled before the one before it."
        ),
        measure=measure_model,
    ),
)
