from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Barrier

import pytest
from sqlalchemy import bindparam, event, text, update
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.adapters.test_ledger_plans import steps_of
from tests.contracts.jobs import CANARY, GROUP, JobsContract, ids_of_dry_run, ids_of_job
from tests.contracts.ledger import resolve

from angzarr.adapters.sql.ledger.column_types import UtcTime
from angzarr.adapters.sql.ledger.schema import replay_job_edits
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import ledger_entries
from angzarr.adapters.sql.replay_jobs import choice
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay.job import Selection
from angzarr.errors import DecodeError

LEASE = timedelta(seconds=15)
#: The steps in which PostgreSQL joins tables.
JOINS = {"Nested Loop", "Hash Join", "Merge Join"}
#: What an engine of the release before edits asks for jobs.
OLD_TAKE = text(
    "SELECT id FROM replay_jobs WHERE (status = 'running' OR sent > handled + failed + unanswered)"
    " AND (engine = :engine OR leased_until IS NULL OR leased_until <= :now)"
).bindparams(bindparam("now", type_=UtcTime))


class SqlJobsContract(JobsContract):
    @pytest.fixture
    def ledger(self, database, clock):
        return SqlLedger(database, clock)

    @pytest.fixture
    def jobs(self, database, clock):
        return SqlReplayJobs(database, clock)

    def test_an_entry_of_a_job_that_is_not_done_is_not_removed(self, jobs, hold, ledger, clock):
        (entry,) = hold(1)
        job = jobs.begin(Selection(entry_ids=(entry.id,)), CANARY, by="ann")
        resolve(ledger, entry.id, "ann")
        clock.sleep(timedelta(days=300))
        every = dict.fromkeys(Status, clock.now())
        assert ledger.prune(every, limit=10) == 0
        assert jobs.cancel(job.id, by="ann")
        assert ledger.prune(every, limit=10) == 1

    @pytest.mark.parametrize(("limit", "asked"), [(None, 0), (1, 0), (2, 1), (9, 1)])
    def test_other_jobs_are_summed_by_the_database_and_only_where_they_matter(
        self, jobs, hold, engine, limit, asked
    ):
        entries = hold(3)
        other = tuple(entry.id for entry in entries[:1])
        jobs.begin(Selection(entry_ids=other), CANARY, by="ann@elsewhere")
        read = []
        listen = lambda *told: read.append(told[2])  # noqa: E731 - removed by the same name
        event.listen(engine, "before_cursor_execute", listen)
        try:
            job = jobs.begin(GROUP, CANARY, by="ann", approval_over=limit)
        finally:
            event.remove(engine, "before_cursor_execute", listen)
        assert job.total == 2
        sums = [one for one in read if "sum(" in one.lower()]
        assert len(sums) == asked
        assert not any("selection" in one for one in sums)
        if limit == 2:
            assert "with 1 of other jobs" in job.said

    def test_an_edit_goes_with_its_entry(self, jobs, hold, edit_of, ledger, clock):
        (entry,) = hold(1)
        chosen = Selection(entry_ids=(entry.id,))
        job = jobs.begin(chosen, CANARY, by="ann", edit=edit_of(entry))
        jobs.cancel(job.id, by="ann")
        assert jobs.job_edit(job.id)
        resolve(ledger, entry.id, "ann")
        clock.sleep(timedelta(days=300))
        assert ledger.prune(dict.fromkeys(Status, clock.now()), limit=10) == 1
        assert jobs.job_edit(job.id) is None
        assert jobs.open_job(job.id).edit

    def test_a_release_that_knows_no_edits_never_finds_a_job_with_one(
        self, jobs, hold, edit_of, engine, clock
    ):
        edited, plain = hold(2)
        chosen = Selection(entry_ids=(edited.id,))
        job = jobs.begin(chosen, CANARY, by="ann", edit=edit_of(edited))
        other = jobs.begin(Selection(entry_ids=(plain.id,)), CANARY, by="ann")
        mine = {job.id, other.id}
        assert not jobs.approve(job.id, by="ann")
        jobs.approve(job.id, by="bob")

        def old_finds():
            clock.sleep(timedelta(days=1))
            with engine.connect() as connection:
                found = connection.execute(OLD_TAKE, {"engine": "old", "now": clock.now()})
                return {row.id for row in found} & mine

        def new_takes(who, limit=9):
            return {one.id for one in jobs.take(who, lease=LEASE, limit=limit)} & mine

        assert old_finds() == {other.id}
        assert new_takes("a") == mine
        assert new_takes("b") == set()
        assert old_finds() == {other.id}
        assert new_takes("b") == mine
        assert [one.entry_id for one in jobs.begin_next(job.id, "b", limit=1, most_replays=5)]
        assert old_finds() == {other.id}
        assert jobs.reconcile(job.id, "old") is None

    def test_jobs_with_edits_and_without_take_turns(self, jobs, hold, edit_of, clock):
        edited, *others = hold(3)
        chosen = Selection(entry_ids=(edited.id,))
        mine = [jobs.begin(chosen, CANARY, by="ann", edit=edit_of(edited)).id]
        jobs.approve(mine[0], by="bob")
        mine += [jobs.begin(Selection(entry_ids=(one.id,)), CANARY, by="ann").id for one in others]
        taken = []
        for _ in range(6):
            clock.sleep(LEASE)
            taken += [one.id for one in jobs.take("a", lease=LEASE, limit=1)]
        assert {one: taken.count(one) for one in mine} == dict.fromkeys(mine, 2)

    def test_an_edit_that_was_damaged_says_so(self, jobs, hold, edit_of, engine):
        (entry,) = hold(1)
        chosen = Selection(entry_ids=(entry.id,))
        job = jobs.begin(chosen, CANARY, by="ann", edit=edit_of(entry))
        broken = update(replay_job_edits).where(replay_job_edits.c.job_id == job.id)
        with engine.begin() as connection:
            connection.execute(broken.values(letter=b"\xff\x00"))
        with pytest.raises(DecodeError):
            jobs.job_edit(job.id)

    def test_many_entries_are_chosen_in_slices_each_once(self, jobs, hold, monkeypatch):
        monkeypatch.setattr(choice, "SLICE", 4)
        monkeypatch.setattr(choice, "_NAMED", 3)
        entries = hold(11)
        first = jobs.begin(Selection(entry_ids=(entries[2].id, entries[7].id)), CANARY, by="ann")
        second = jobs.begin(Selection(wanted=GROUP.wanted, limit=9), CANARY, by="ann")
        assert (first.total, second.total) == (2, 7)
        rest = jobs.begin(GROUP, CANARY, by="ann")
        chosen = [item.entry_id for job in (second, rest) for item in jobs.items(job.id)]
        assert chosen == [entry.id for n, entry in enumerate(entries) if n not in {2, 7}]
        jobs.cancel(second.id, by="ann")
        jobs.cancel(rest.id, by="ann")
        named = jobs.begin(Selection(entry_ids=tuple(one.id for one in entries)), CANARY, by="ann")
        assert named.total == 9

    def test_a_limit_on_many_ids_takes_the_oldest_of_all(self, jobs, ledger, hold, monkeypatch):
        monkeypatch.setattr(choice, "_NAMED", 2)
        oldest_last = [entry.id for entry in hold(7)][::-1]
        selection = Selection(entry_ids=tuple(oldest_last), limit=3)
        assert ids_of_dry_run(jobs, ledger, selection) == oldest_last[:-4:-1]
        assert ids_of_job(jobs, selection) == oldest_last[:-4:-1]

    def test_workers_that_begin_one_job_at_once_begin_it_once(self, jobs, hold):
        hold(3)
        jobs.get_jobs()  # the tables are there
        together = Barrier(4)

        def begin(person):
            together.wait()
            return jobs.begin(GROUP, CANARY, by=person, job_id="auto-1")

        with ThreadPoolExecutor(4) as pool:
            begun = list(pool.map(begin, ("ann", "bob", "eve", "joe")))
        assert {(job.created_by, job.total) for job in begun} == {(begun[0].created_by, 3)}
        assert len(jobs.items("auto-1")) == 3
        assert len(jobs.job_history("auto-1")) == 1


class TestSqliteReplayJobs(OnSqlite, SqlJobsContract):
    pass


class TestPostgresqlReplayJobs(OnPostgresql, SqlJobsContract):
    def test_a_large_group_is_chosen_by_statements_that_join_nothing(
        self, engine, jobs, hold, monkeypatch
    ):
        """PostgreSQL has not counted these rows: joined as it then plans, it takes minutes."""
        monkeypatch.setattr(choice, "SLICE", 1_000)
        (entry,) = hold(1)
        copy_entries(engine, 2_500)
        other = jobs.begin(Selection(entry_ids=(entry.id,)), CANARY, by="bob")
        with said_of(engine, "ledger_entries") as asked:
            job = jobs.begin(GROUP, CANARY, by="ann")
        assert (other.total, job.total) == (1, 2_500)
        with engine.connect() as connection:
            plans = [plan_of(connection, *one) for one in asked]
        nodes = [node for plan in plans for node in steps_of(plan)]
        assert not JOINS & {node["Node Type"] for node in nodes}
        items = {
            node["Node Type"] for node in nodes if node.get("Relation Name") == "replay_job_items"
        }
        assert items - {"ModifyTable"}
        assert "Seq Scan" not in items, "each entry's claims are asked for by an index"
        written = [statement for statement, _ in asked if statement.startswith("INSERT")]
        assert len(written) == 3, "one for each slice"


def copy_entries(engine, count):
    """Copy the one entry that there is, as only SQL is quick enough to."""
    columns = [column.name for column in ledger_entries.c]
    values = {
        "id": "md5(n::text) || md5(n::text)",
        "last_failed_at": "last_failed_at + n * interval '1 second'",
    }
    copied = ", ".join(values.get(name, name) for name in columns)
    copies = f"SELECT {copied} FROM ledger_entries, generate_series(1, {count}) AS n"  # noqa: S608
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO ledger_entries ({', '.join(columns)}) {copies}"))


@contextmanager
def said_of(engine, table):
    """Lend the statements about *table*, with their parameters."""
    said = []

    def hear(_connection, _cursor, statement, parameters, *_rest):
        if table in statement:
            said.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        event.remove(engine, "before_cursor_execute", hear)


def plan_of(connection, statement, parameters):
    found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar()
    return (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
