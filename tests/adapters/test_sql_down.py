"""A database that is down is told as such; one without tables gets them with the first step."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import inspect
from tests.contracts.alerts import LEASE, sighting_of
from tests.contracts.fleet import LONG, member
from tests.contracts.ledger import letter_of
from tests.contracts.rejections import a_case
from tests.contracts.schedule import message
from tests.contracts.waiting_events import new_lane, step_of
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.delivery.claim_tables import create_tables
from angzarr.adapters.sql.delivery.fleet import SqlFleet
from angzarr.adapters.sql.delivery.idempotency import SqlIdempotencyStore, SqlOwnerLeases
from angzarr.adapters.sql.delivery.schedule import SqlSchedule
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks, SqlEventStore
from angzarr.adapters.sql.event_store.rejections import SqlRejectionLog
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.writes import SqlWrites
from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.idempotent_requests import WriteKey
from angzarr.errors import StoreUnavailable, Unavailable
from angzarr.resilience.idempotency import Claim, Complete
from angzarr.sagas.log import CaseFilter

PLACE, LANE = Address("player", "p"), new_lane()
CLAIM = Claim(key="k", token="t", owner="o")


def of_ledger(kind):
    return lambda engine: kind(LedgerDatabase(engine))


#: What makes a store, its verbs, and tables that come with the first of them.
STORES = {
    "books": (
        SqlEventBooks,
        [lambda one: one.read(PLACE)],
        {"event_books", "book_events"},
    ),
    "event store": (
        SqlEventStore,
        [lambda one: one.scan(["player"], None, 1), lambda one: one.heads(["player"], None, 1)],
        {"event_books", "book_events"},
    ),
    "rejections": (
        SqlRejectionLog,
        [lambda one: one.cases(CaseFilter(), limit=1), lambda one: one.note(a_case())],
        {"rejected_commands"},
    ),
    "checkpoints": (
        SqlCheckpoints,
        [lambda one: one.get("p"), lambda one: one.by_type("p"), lambda one: one.reset("p")],
        {"projection_checkpoints"},
    ),
    "lanes": (
        SqlLanes,
        [lambda one: one.look(LANE), lambda one: one.run(step_of(LANE, 0), lambda _: None)],
        {"ordering_lanes", "ordering_waiting", "ordering_keepers", "projection_checkpoints"},
    ),
    "claims": (
        SqlIdempotencyStore,
        [
            lambda one: one.claim([CLAIM]),
            lambda one: one.owns("k", "t"),
            lambda one: one.settle("k", "t", Complete()),
        ],
        {"idempotency_keys"},
    ),
    "leases": (SqlOwnerLeases, [lambda one: one.renew("o", LONG)], {"owner_leases"}),
    "fleet": (
        SqlFleet,
        [SqlFleet.members, SqlFleet.releases, lambda one: one.register(member("a"))],
        {"fleet_members", "fleet_releases"},
    ),
    "schedule": (
        SqlSchedule,
        [
            lambda one: one.put(message(), datetime.now(UTC)),
            lambda one: one.take("a", 1, LONG),
        ],
        {"waiting_messages"},
    ),
    "ledger": (
        of_ledger(SqlLedger),
        [
            SqlLedger.get_failure_stats,
            lambda one: one.add_failed_event(letter_of()),
            lambda one: one.open("f" * 64),
        ],
        {"ledger_entries"},
    ),
    "jobs": (of_ledger(SqlReplayJobs), [SqlReplayJobs.get_jobs], {"replay_jobs"}),
    "writes": (
        of_ledger(SqlWrites),
        [lambda one: one.begin(WriteKey("ada", "k"), "f", "t")],
        {"remembered_writes"},
    ),
    "alerts": (
        of_ledger(SqlAlerts),
        [
            SqlAlerts.get_alerts,
            lambda one: one.raise_([sighting_of()]),
            lambda one: one.due("log", limit=1, lease=LEASE),
        ],
        {"ledger_alerts"},
    ),
}
every_store = pytest.mark.parametrize(("make", "verbs", "tables"), STORES.values(), ids=STORES)


@every_store
def test_a_server_that_is_down_is_unavailable_quickly_and_the_password_stays_secret(
    make, verbs, tables
):
    engine = build_engine(f"postgresql://user:s3cret@127.0.0.1:{unused_port()}/angzarr")
    store, began = make(engine), time.monotonic()
    for verb in verbs:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1") as caught:
            verb(store)
        cause = caught.value.__cause__
        assert "s3cret" not in f"{caught.value} {cause!r} {cause}"
    assert time.monotonic() - began < 20 * len(verbs)


@every_store
def test_tables_come_with_the_first_step(make, verbs, tables, tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'angzarr.db'}")
    verbs[0](make(engine))
    assert tables <= set(inspect(engine).get_table_names())
    engine.dispose()


@every_store
def test_a_file_that_cannot_be_opened_is_unavailable(make, verbs, tables, tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'no folder' / 'x.db'}")
    with pytest.raises(Unavailable, match=r"x\.db"):
        verbs[0](make(engine))


def test_tables_in_a_folder_that_does_not_exist_are_not_created(tmp_path):
    quick = timedelta(milliseconds=500)
    engine = build_engine(f"sqlite:///{tmp_path}/missing/angzarr.db", timeout=quick)
    with pytest.raises(StoreUnavailable, match="unable to open"):
        create_tables(engine)
