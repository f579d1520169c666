"""How fast a read model is rebuilt from a million events, against a bare loop of inserts."""

from __future__ import annotations

import os
import sys

from harness import book_fill, peak, servers
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import alternate, medians, ratios
from harness.worker import BENCHMARKS
from sqlalchemy import Engine, text

from angzarr.adapters.sql.engine.engine import build_engine
from figures.sides import PAIRS

#: Fewer for a quick look while working on the code; the report tells how many there were.
BOOKS = int(os.environ.get("BENCH_BOOKS", "100000"))
EACH = int(os.environ.get("BENCH_EVENTS_A_BOOK", "10"))
EVENTS = BOOKS * EACH

_PATHS = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
_TABLE = text(
    "CREATE TABLE entries (account text, sequence integer, cents bigint NOT NULL,"
    " PRIMARY KEY (account, sequence))"
)
_SUMS = text("SELECT count(*), coalesce(sum(cents), 0) FROM entries")


def measure() -> Measured:
    """Rebuild and insert in turn, all in one database, which has the events of all runs."""
    with servers.database() as url:
        engine = build_engine(url)
        try:
            book_fill.fill(engine, BOOKS, EACH)
            with engine.begin() as connection:
                connection.execute(_TABLE)
            return _measured(engine, {**os.environ, "ANGZARR_BOOKS": url, "PYTHONPATH": _PATHS})
        finally:
            engine.dispose()


def _measured(engine: Engine, environment: dict[str, str]) -> Measured:
    ours_mib, theirs_mib = [], []

    def ours() -> float:
        command = [
            sys.executable, "-m", "angzarr", "-A", "workers.entries", "projection", "rebuild",
            "entries", "--yes", "--json",
        ]  # fmt: skip
        ran = peak.run(command, environment)
        _expect_all(engine)
        ours_mib.append(ran.peak_mib)
        return EVENTS / ran.seconds

    def theirs() -> float:
        with engine.begin() as connection:
            connection.execute(text("TRUNCATE entries"))
        command = [sys.executable, "-m", "workers.entries", str(BOOKS), str(EACH)]
        ran = peak.run(command, environment)
        _expect_all(engine)
        theirs_mib.append(ran.peak_mib)
        return EVENTS / float(ran.printed)

    pairs = alternate(ours, theirs, pairs=PAIRS)
    middle = medians(pairs)
    return Measured(
        values=ratios(pairs),
        detail={
            "events_per_second_rebuild": round(middle.ours),
            "events_per_second_bare_loop": round(middle.theirs),
            "events": f"{EVENTS:,}",
            "aggregates": f"{BOOKS:,}",
            "peak_memory_of_the_rebuild_mib": round(max(ours_mib)),
            "peak_memory_of_the_bare_loop_mib": round(max(theirs_mib)),
            "database": "PostgreSQL without fsync, for event books, lanes and read model",
        },
    )


def _expect_all(engine: Engine) -> None:
    """Refuse a rate that was reached without all rows."""
    with engine.connect() as connection:
        found = tuple(map(int, connection.execute(_SUMS).one()))
    if found != (EVENTS, BOOKS * sum(range(EACH))):
        msg = f"the read model has {found[0]} of {EVENTS} rows"
        raise NotMeasured(msg)


FIGURES = (
    Figure(
        key="rebuild_vs_inserts",
        title="rebuild of a projection from a million events",
        unit="ratio",
        aim="≥ 0.5",
        against="a bare loop that inserts the same rows",
        how=(
            "`angzarr projection rebuild` reads every event of the event books, decodes it and lets"
            " the projection execute one INSERT for it, into tables beside the live ones, which it"
            " replaces at the end in one transaction; the live ones have as many rows. Its time is"
            " that of the whole process. The bare loop executes the same INSERT by SQLAlchemy, once"
            " for each row as a projection has to, with a commit after every thousand, and reads no"
            " events. Both in turn, in one database; a run counts only if all rows are there."
        ),
        measure=measure,
    ),
)
