"""What transactions of others do to ours at the worst moment, on PostgreSQL: nothing is lost."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from sqlalchemy import func, insert, select, text
from tests.contracts.alerts import sighting_of, storm_of, watch_of
from tests.contracts.ledger import HOLD, letter_of

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger import counts as ledger_recount
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.counts import recount
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import remembered_writes
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import ledger_counts
from angzarr.adapters.sql.ledger.writes import SqlWrites
from angzarr.adapters.sql.replay_jobs import choice as job_choosing
from angzarr.adapters.sql.replay_jobs import store as jobs
from angzarr.adapters.sql.replay_jobs.choice import _CHOOSE_LOCK
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.ledger.emergency_stop import Scope
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.idempotent_requests import RequestBegun, RequestRunning, WriteKey
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay.job import ONE_ENTRY, JobEdit, JobPlan, Selection
from angzarr.errors import LedgerUnavailable


@pytest.fixture
def url(postgresql_url, unique_name):
    """The address of a database of its own."""
    admin = build_engine(postgresql_url).execution_options(isolation_level="AUTOCOMMIT")
    name = f"rivals-{unique_name}"
    with admin.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    yield str(admin.url.set(database=name).render_as_string(hide_password=False))
    with admin.connect() as connection:
        connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    admin.dispose()


@pytest.fixture
def open_database(url):
    opened = []

    def make():
        opened.append(LedgerDatabase(build_engine(url)))
        return opened[-1]

    yield make
    for database in opened:
        database.close()


@pytest.fixture
def database(open_database):
    return open_database()


@pytest.fixture
def ledger(database):
    return SqlLedger(database)


def lose_the_answer_to_a_commit(engine):
    """Have the next COMMIT done, and the connection cut before anybody hears of it."""
    real = engine.dialect.do_commit

    def lost(connection):
        engine.dialect.do_commit = real
        real(connection)
        connection.dbapi_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    engine.dialect.do_commit = lost


def test_what_may_have_been_done_is_not_said_to_be_refused(database, ledger):
    entry = ledger.add_failed_event(letter_of("e1"))
    skip = Act(entry_id=entry.id, revision=entry.revision, verb=Verb.SKIP)
    lose_the_answer_to_a_commit(database.engine)
    with pytest.raises(LedgerUnavailable, match="look whether it was done"):
        ledger.act([skip], by="ann")
    assert ledger.open(entry.id).entry.status is Status.SKIPPED
    brake = SqlBrake(database)
    lose_the_answer_to_a_commit(database.engine)
    with pytest.raises(LedgerUnavailable, match="look whether it was done"):
        brake.put(Scope.ALL, by="ann", why="a pull")
    assert brake.state().revision == 1


def test_what_can_be_done_twice_is_done_again_where_the_answer_was_lost(database, ledger):
    ledger.add_failed_event(letter_of("e1"))
    lose_the_answer_to_a_commit(database.engine)
    (entry,) = ledger.add_failed_events([letter_of("e2")])
    assert entry.occurrences == 1
    assert recount(database.engine)


@pytest.mark.parametrize("workers", [8])
def test_workers_that_file_the_same_letters_at_once_file_them_all(open_database, workers):
    ledgers = [SqlLedger(open_database()) for _ in range(workers)]
    ledgers[0].get_failure_stats()
    start, problems = threading.Barrier(workers), []

    def file(number):
        for at in range(15):
            events = [f"e{(number + step) % 12}-{at}" for step in range(6)]
            start.wait(60)
            try:
                ledgers[number].add_failed_events([letter_of(event) for event in events])
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=file, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_storms_and_their_groups_are_stored_in_one_order(database, monkeypatch):
    alerts, order = SqlAlerts(database), []
    store = "angzarr.adapters.sql.ledger.alerts._store_watch"
    monkeypatch.setattr(store, lambda _connection, watch: order.append(watch.subject) or True)
    monkeypatch.setattr("angzarr.adapters.sql.ledger.alerts._store_alerts", lambda *_raised: None)
    alerts.raise_([sighting_of("b"), storm_of(), sighting_of("a")])
    alerts.raise_([sighting_of("b"), storm_of(watch_of("a"))])
    assert order == ["storm", "group:a", "group:b"] * 2


def test_a_key_that_another_request_sweeps_is_held_by_one_request(database, open_database):
    writes, others = SqlWrites(database), SqlWrites(open_database())
    key, day = WriteKey("ann", "nightly"), timedelta(days=1)
    writes.begin(WriteKey("c", "first"), "f", "t")
    old = {
        "caller": key.caller, "key": key.key, "fingerprint": "f", "token": "old", "status": 200,
        "until": datetime.now(UTC) - day, "headers": [], "body": b"",
    }  # fmt: skip
    mine = remembered_writes.c.caller == key.caller
    with database.engine.begin() as connection:
        connection.execute(insert(remembered_writes), [old])
    found = []
    with open_database().engine.begin() as sweeping:
        sweeping.execute(select(remembered_writes).where(mine).with_for_update())
        asking = threading.Thread(target=lambda: found.append(writes.begin(key, "f", "one")))
        asking.start()
        asking.join(0.3)
        assert not found, "it waits for whoever has it"
        sweeping.execute(remembered_writes.delete().where(mine))
    asking.join(60)
    assert found == [RequestBegun()]
    assert isinstance(others.begin(key, "f", "other"), RequestRunning)
    assert writes.choose(key, "one", b"x")


def test_whoever_fills_a_large_job_is_waited_for_and_told(database, open_database, monkeypatch):
    store = SqlReplayJobs(database)
    entry = SqlLedger(database).add_failed_event(letter_of("e1"))
    monkeypatch.setattr(job_choosing, "_PATIENCE", 0.2)
    with open_database().engine.begin() as filling:
        filling.execute(select(func.pg_advisory_xact_lock(_CHOOSE_LOCK)))
        with pytest.raises(LedgerUnavailable, match="another replay job is being filled"):
            store.begin(Selection(entry_ids=(entry.id,)), JobPlan(), by="ann")
    assert store.begin(Selection(entry_ids=(entry.id,)), JobPlan(), by="ann").total == 1


def test_an_edited_entry_is_not_removed_while_its_job_begins(database, open_database, monkeypatch):
    ledger, others = SqlLedger(database), SqlLedger(open_database())
    entry = ledger.add_failed_event(letter_of("e1"))
    ledger.act([Act(entry_id=entry.id, revision=entry.revision, verb=Verb.SKIP)], by="ann")
    save, removed = jobs.save_edit, []

    def late(*arguments):
        later = datetime.now(UTC) + timedelta(days=1)
        removed.append(others.prune({Status.SKIPPED: later}, limit=10))
        save(*arguments)

    monkeypatch.setattr(jobs, "save_edit", late)
    order = ReplayOrder(letter=letter_of("e1"), before=letter_of("e1"))
    edit = JobEdit(entry_id=entry.id, replays=0, letter_id=entry.letter_id, order=order)
    selection = Selection(entry_ids=(entry.id,))
    job = SqlReplayJobs(database).begin(selection, ONE_ENTRY, by="ann", edit=edit)
    assert (job.total, removed) == (1, [0])


def test_counts_of_a_first_letter_survive_a_mend(database, open_database, ledger, monkeypatch):
    others, real, calls = SqlLedger(open_database()), ledger_recount._counted, []
    ledger.get_failure_stats()
    stale = {
        "key": "stale", "fingerprint": "gz", "domain": "d", "handler_name": "h", "event_type": "t",
        "failure_class": "", "status": "held", "entries": 1, "occurrences": 1, "replays": 0,
    }  # fmt: skip
    with database.engine.begin() as connection:
        connection.execute(insert(ledger_counts), [stale])

    def counted(connection, names):
        found = real(connection, names)
        calls.append(names)
        if len(calls) == 2:
            letter = letter_of("e1", fingerprint="gz")
            others.add_failed_events([letter], decide=lambda _new: [HOLD], by="w")
        return found

    monkeypatch.setattr(ledger_recount, "_counted", counted)
    list(recount(database.engine, fix=True))
    assert len(calls) >= 2
    monkeypatch.undo()
    assert [step.wrong for step in recount(database.engine, fix=False)] == [()]
