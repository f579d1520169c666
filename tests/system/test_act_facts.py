"""The fact of an act outlives any kill, and is there once, wherever the kill strikes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest
from sqlalchemy import select
from tests.adapters.sql_sides import emptied
from tests.system.acting_process import relay_of

from angzarr.adapters.sql.configuration.store import SqlConfigurationStore
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.adapters.sql.facts.sink import SqlFactSink
from angzarr.adapters.sql.facts.tables import facts as fact_table
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.tables import ledger_history
from angzarr.facts.query import FactOrder, FactQuery
from system.conftest import CHECKOUT, PATH

KILLS = 16
#: What histories call acts, and their facts.
ACTS = {
    "skip": "entry_skipped", "archive": "entry_archived", "restore": "entry_restored",
    "escalate": "entry_escalated", "resolve": "entry_resolved", "retrying": "entry_replayed",
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request, tmp_path):
    """The URLs of an empty ledger and of facts, which are in one database of PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db", f"sqlite:///{tmp_path}/facts.db"
        return
    url = request.getfixturevalue("postgresql_url")
    engine = build_engine(url)
    emptied(engine).dispose()
    drop_facts(url)
    yield url, url
    drop_facts(url)


def drop_facts(url):
    engine = build_engine(url)
    fact_table.metadata.drop_all(engine)
    engine.dispose()


def run_until_it_dies(urls, seed: int, process: str = "acting_process") -> None:
    process = subprocess.run(
        [sys.executable, "-m", f"tests.system.{process}", *urls, str(seed)],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": PATH}, check=False,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL


def history_of(database) -> Counter[tuple[str, str, str]]:
    wanted = select(ledger_history).where(ledger_history.c.what.in_(sorted(ACTS)))
    rows = database.read(lambda connection: connection.execute(wanted).all())
    return Counter((row.entry_id, row.at.isoformat(), ACTS[row.what]) for row in rows)


def facts_in(url) -> Counter[tuple[str, str, str]]:
    reader, after, found = SqlFactReader(url), "", Counter()
    while True:
        page = reader.find(FactQuery(type="lifecycle"), order=FactOrder.OLDEST, after=after)
        found.update((one.data["entry_id"], one.at.isoformat(), one.subtype) for one in page.facts)
        if not (after := page.next):
            reader.close()
            return found


def test_every_act_in_the_history_has_exactly_one_fact_whenever_its_process_is_killed(urls):
    for seed in range(KILLS):
        run_until_it_dies(urls, seed)
    with (
        closing(LedgerDatabase(build_engine(urls[0]))) as database,
        closing(SqlFactSink(build_engine(urls[1]))) as sink,
    ):
        relay = relay_of(database, sink)
        while relay.outbox.read(1):  # what waits is moved by the next one
            relay.turn()
        known = history_of(database)
    told = facts_in(urls[1])
    assert known.total() >= KILLS
    assert told == known


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request, tmp_path):
    """The URLs of configurations and of facts; the first is a file of its own."""
    facts = f"sqlite:///{tmp_path}/facts.db"
    if request.param == "postgresql":
        facts = request.getfixturevalue("postgresql_url")
        drop_facts(facts)
    yield f"sqlite:///{tmp_path}/config.db", facts
    if request.param == "postgresql":
        drop_facts(facts)


def test_what_is_done_off_the_ledger_has_begun_in_the_facts_whenever_its_process_is_killed(places):
    for seed in range(KILLS):
        run_until_it_dies(places, seed, "putting_process")
    with (
        closing(SqlConfigurationStore(build_engine(places[0]))) as store,
        closing(SqlFactReader(places[1])) as reader,
    ):
        done = set(store.ids())
        begun = reader.find(FactQuery(subtype="act_begun"), limit=1000).facts
        ends = reader.ends(begun)
    by_end = {one.data["subject"]: ends.get(one.id) for one in begun}
    assert len(by_end) == len(begun)
    assert done <= by_end.keys(), "each act that was done has begun"
    without = {subject for subject, end in by_end.items() if end is None}
    assert 0 < len(without) <= KILLS, "at most the last act of a process has no end"
    assert by_end.keys() - without <= done, "what has an end was done"
