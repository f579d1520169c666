"""The ledger's tables, from those of before there were revisions to today's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Engine, column, delete, event, func, insert, inspect, select, text, update
from sqlalchemy import table as sa_table
from tests.adapters.revisions import failing_at, indexes, run_ddl
from tests.adapters.sql_ledger import Both
from tests.contracts.groups import Hand, assert_counts_are_exact
from tests.contracts.ledger import letter_of
from tests.hand_clock import HandClock

from angzarr.adapters.sql.engine import schema
from angzarr.adapters.sql.engine.engine import build_engine, patient
from angzarr.adapters.sql.engine.schema import Schema
from angzarr.adapters.sql.ledger.database import LedgerDatabase, SqlUpkeep
from angzarr.adapters.sql.ledger.schema import LEDGER
from angzarr.adapters.sql.ledger.tables import (
    HEAD,
    METADATA,
    ledger_counts,
    ledger_entries,
    ledger_groups,
    ledger_history,
    ledger_letters,
    ledger_version,
)
from angzarr.adapters.sql.migrations.ledger import r0004_counted
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.group import GroupFilter
from angzarr.errors import LedgerUnavailable
from angzarr.maintenance.schema_versions import Revision, SchemaStanding

FIRST = (ledger_entries, ledger_letters, ledger_history)
#: Tables of later revisions that need no others of them.
LATER = (
    "replay_jobs", "replay_job_items", "replay_job_history", "remembered_writes",
    "ledger_alert_watches", "ledger_alerts", "ledger_alert_deliveries",
    "ledger_released_payloads",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """What a ledger holds after a while, table by table."""
    file = tmp_path_factory.mktemp("filled") / "ledger.db"
    ledger = Both(LedgerDatabase(build_engine(f"sqlite:///{file}")), HandClock())
    hand = Hand(ledger, seed=3)
    for _ in range(40):
        hand.move()
    rows = ledger._database.read(
        lambda connection: {
            table: [dict(row._mapping) for row in connection.execute(select(table))]
            for table in FIRST
        }
    )
    ledger.close()
    archived = next(row for row in rows[ledger_entries] if row["status"] == Status.HELD)
    archived["status"] = Status.ARCHIVED.value  # as it was then: without a time
    for row in rows[ledger_entries]:
        del row["hold"], row["root"], row["trace_id"]  # of revisions 0010, 0015 and 0019
    for row in rows[ledger_letters]:
        del row["payload_uri"], row["payload_holder"]  # of revision 0020
    for row in rows[ledger_history]:
        del row["origin"]  # of revision 0022
    return rows


def make_first_tables(engine: Engine, rows) -> None:
    run_ddl(engine, "ledger_of_0001")
    with engine.begin() as connection:
        for table in FIRST:
            if rows.get(table):
                columns = [table.c[name] for name in rows[table][0]]
                first = insert(sa_table(table.name, *(column(c.name, c.type) for c in columns)))
                connection.execute(first, rows[table])
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT setval('ledger_history_number_seq', 10000)"))


@contextmanager
def once_after(engine: Engine, part: str, change):
    """Run *change* on the connection that has just asked what holds *part*, once."""
    left = [change]

    def act(connection, _cursor, statement, *_rest):
        if part in statement and left:
            connection.execute(left.pop())

    event.listen(engine, "after_cursor_execute", act)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", act)
    assert not left


class UpgradeContract:
    @pytest.fixture
    def url(self):
        raise NotImplementedError

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url)
        METADATA.drop_all(engine)
        yield engine
        METADATA.drop_all(engine)
        engine.dispose()

    def test_new_tables_are_those_of_this_release(self, engine):
        LEDGER.make_ready(engine)
        assert LEDGER.revision_of(engine).standing is SchemaStanding.CURRENT
        assert SqlUpkeep(LedgerDatabase(engine)).differences() == []

    def test_first_tables_are_adopted_and_upgraded_with_their_rows(self, engine, filled):
        make_first_tables(engine, filled)
        assert LEDGER.revision_of(engine).found == "0001"
        ledger = Both(LedgerDatabase(engine), HandClock())
        assert_counts_are_exact(ledger)
        assert SqlUpkeep(LedgerDatabase(engine)).differences() == []
        assert [step.wrong for step in SqlUpkeep(LedgerDatabase(engine)).recount(fix=False)] == [()]
        with engine.connect() as connection:
            for table in FIRST:
                key = next(iter(table.primary_key))
                rows = connection.execute(select(table).order_by(key)).all()
                expected = sorted(filled[table], key=lambda row: row[key.name])
                for row, was in zip(rows, expected, strict=True):
                    now = dict(row._mapping)
                    assert now.pop("hold", None) is None
                    assert now.pop("root", "") == ""
                    assert now.pop("trace_id", "") == ""
                    assert now.pop("origin", None) is None
                    assert now.pop("payload_uri", None) is now.pop("payload_holder", None) is None
                    if was.get("status") == Status.ARCHIVED and was["resolved_at"] is None:
                        assert now["resolved_at"] == was["last_failed_at"]
                        now["resolved_at"] = None
                    assert now == was

    def test_upgraded_tables_have_the_indexes_of_new_ones(self, engine, filled):
        make_first_tables(engine, filled)
        LEDGER.make_ready(engine)
        upgraded = indexes(engine, METADATA)
        METADATA.drop_all(engine)
        LEDGER.make_ready(engine)
        assert upgraded == indexes(engine, METADATA)

    def test_the_first_revision_makes_the_first_tables(self, engine, monkeypatch):
        make_first_tables(engine, {})
        first = indexes(engine, METADATA), set(inspect(engine).get_table_names())
        METADATA.drop_all(engine)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE ledger_version (version_num VARCHAR(32))"))
        first_alone = replace(LEDGER, head="0001")
        monkeypatch.setattr(Schema, "found", lambda *_: Revision("0000", "0001"))
        first_alone.upgrade(engine)
        assert indexes(engine, METADATA) - first[0] <= {
            one for one in indexes(engine, METADATA) if "version" in one
        }
        assert set(inspect(engine).get_table_names()) == first[1] | {"ledger_version"}

    def test_processes_that_start_together_upgrade_once(self, url, engine, filled):
        make_first_tables(engine, filled)
        ledgers = [Both(LedgerDatabase(build_engine(url)), HandClock()) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            ids = list(pool.map(lambda one: one.add_failed_event(letter_of("new")).id, ledgers))
        assert len(set(ids)) == 1
        assert_counts_are_exact(ledgers[0])
        assert ledgers[0].open(ids[0]).entry.occurrences == 1
        for one in ledgers:
            one.close()

    def test_processes_that_start_together_make_new_tables_once(self, url, engine):
        ledgers = [Both(LedgerDatabase(build_engine(url)), HandClock()) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda one: one.get_failure_stats(), ledgers))
        with engine.connect() as connection:
            assert connection.scalars(select(ledger_version.c.version_num)).all() == [HEAD]
        for one in ledgers:
            one.close()

    @pytest.mark.parametrize(
        "beginning", ["CREATE TABLE ledger_counts", "INSERT INTO ledger_counts"]
    )
    def test_a_revision_that_fails_leaves_the_state_before_it(self, engine, filled, beginning):
        make_first_tables(engine, filled)
        before = indexes(engine, METADATA)
        with failing_at(beginning), pytest.raises(OSError, match="the power went"):
            LEDGER.make_ready(engine)
        revision = LEDGER.revision_of(engine)
        assert revision.standing is SchemaStanding.BEHIND
        if engine.dialect.name == "sqlite" or "TABLE" in beginning:
            assert revision.found == "0001"
            assert (
                indexes(engine, METADATA)
                - {one for one in indexes(engine, METADATA) if "version" in one}
                == before
            )
        ledger = Both(LedgerDatabase(engine), HandClock())
        assert_counts_are_exact(ledger)
        assert SqlUpkeep(LedgerDatabase(engine)).differences() == []

    @pytest.fixture
    def uncounted(self, engine, filled):
        """Tables with entries that are not counted yet, and the fingerprint of some of them."""
        LEDGER.make_ready(engine)
        with engine.begin() as connection:
            connection.execute(insert(ledger_entries), filled[ledger_entries])
        return filled[ledger_entries][0]["fingerprint"]

    @pytest.mark.parametrize("part", ["SELECT DISTINCT", "GROUP BY"])
    def test_entries_that_go_while_they_are_counted_stop_no_upgrade(self, engine, uncounted, part):
        gone = delete(ledger_entries).where(ledger_entries.c.fingerprint == uncounted)
        with engine.begin() as connection, once_after(engine, part, gone):
            r0004_counted.fill(connection)
        ledger = Both(LedgerDatabase(engine))
        others = {row.fingerprint for row in ledger.get_groups(GroupFilter(open_only=False)).groups}
        with engine.connect() as connection:
            left = set(connection.scalars(select(ledger_entries.c.fingerprint)))
        assert others == left != set()
        list(SqlUpkeep(LedgerDatabase(engine)).recount(fix=True))  # as the how-to asks for
        assert_counts_are_exact(ledger)

    def test_entries_that_go_and_come_while_they_are_counted_stop_no_upgrade(
        self, engine, filled, uncounted
    ):
        mine = [one for one in filled[ledger_entries] if one["fingerprint"] == uncounted]
        gone = delete(ledger_entries).where(ledger_entries.c.fingerprint == uncounted)
        back = insert(ledger_entries).values(mine)
        with (
            engine.begin() as connection,
            once_after(engine, "SELECT DISTINCT", gone),
            once_after(engine, "GROUP BY", back),
        ):
            r0004_counted.fill(connection)
        ledger = Both(LedgerDatabase(engine))
        assert ledger.open_group(uncounted) is None
        list(SqlUpkeep(LedgerDatabase(engine)).recount(fix=True))
        assert ledger.open_group(uncounted).entries == len(mine)
        assert_counts_are_exact(ledger)

    def test_counting_once_more_changes_nothing(self, engine, uncounted):
        tables = (ledger_groups, ledger_counts)

        def counted():
            with engine.begin() as connection:
                r0004_counted.fill(connection)
                return [
                    sorted(map(tuple, connection.execute(select(table))), key=repr)
                    for table in tables
                ]

        assert counted() == counted()
        assert_counts_are_exact(Both(LedgerDatabase(engine)))

    def test_tables_that_are_there_already_get_the_indexes_that_are_not(self, engine, filled):
        make_first_tables(engine, filled)
        later = [METADATA.tables[name] for name in LATER]
        METADATA.create_all(engine, later)
        with engine.begin() as connection:
            for index in ("replay_jobs_by_time", "ledger_alerts_by_time"):
                connection.execute(text(f"DROP INDEX {index}"))
        LEDGER.make_ready(engine)
        assert SqlUpkeep(LedgerDatabase(engine)).differences() == []

    def test_tables_behind_are_refused_where_they_may_not_be_changed(self, engine, filled):
        make_first_tables(engine, filled)
        ledger = Both(LedgerDatabase(engine, migrate=False))
        with pytest.raises(LedgerUnavailable, match=r"0001.*`angzarr ledger upgrade`"):
            ledger.get_groups()
        assert LEDGER.revision_of(engine).found == "0001"
        assert SqlUpkeep(LedgerDatabase(engine)).upgrade().found == "0001"
        assert ledger.get_groups(GroupFilter(open_only=False)).groups

    def test_missing_tables_are_refused_where_none_may_be_made(self, engine):
        with pytest.raises(LedgerUnavailable, match=r"no tables.*`angzarr ledger upgrade`"):
            Both(LedgerDatabase(engine, migrate=False)).add_failed_event(letter_of())
        assert not inspect(engine).has_table("ledger_entries")

    def test_tables_of_a_newer_release_are_refused_and_left_alone(self, engine):
        LEDGER.make_ready(engine)
        with engine.begin() as connection:
            connection.execute(update(ledger_version).values(version_num="9999"))
        for act in (
            lambda: Both(LedgerDatabase(engine)).add_failed_event(letter_of()),
            SqlUpkeep(LedgerDatabase(engine)).upgrade,
        ):
            with pytest.raises(LedgerUnavailable, match=r"9999.*newer release here too"):
                act()

    def test_what_differs_is_told(self, engine):
        LEDGER.make_ready(engine)
        with engine.begin() as connection:
            connection.execute(text("DROP INDEX ledger_entries_of_group"))
        (told,) = SqlUpkeep(LedgerDatabase(engine)).differences()
        assert "ledger_entries_of_group" in told


class TestSqliteUpgrade(UpgradeContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'ledger.db'}"


class TestPostgresqlUpgrade(UpgradeContract):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url

    @pytest.mark.parametrize("before", ["no tables", "first tables"])
    def test_letters_are_compressed_quickly(self, engine, filled, before):
        if before == "first tables":
            make_first_tables(engine, filled)
        LEDGER.make_ready(engine)
        asked = text(
            "SELECT attcompression FROM pg_attribute"
            " WHERE attrelid = 'ledger_letters'::regclass AND attname = 'body'"
        )
        with engine.connect() as connection:
            assert connection.scalar(asked) in {"l", b"l"}

    def test_an_upgrade_may_take_longer_than_a_statement(self, engine):
        with patient(engine) as slow, slow.connect() as connection:
            assert connection.scalar(text("SHOW statement_timeout")) == "0"
            assert connection.scalar(text("SHOW lock_timeout")) == "4500ms"

    def test_no_revision_waits_without_an_end_for_those_that_use_a_table(self, engine, filled):
        make_first_tables(engine, filled)
        limits = []

        def look(connection, _cursor, statement, *_rest):
            if statement.lstrip().startswith("ALTER TABLE"):
                limits.append(connection.exec_driver_sql("SHOW lock_timeout").scalar())

        event.listen(Engine, "before_cursor_execute", look)
        try:
            LedgerDatabase(engine).read(lambda _connection: None)
        finally:
            event.remove(Engine, "before_cursor_execute", look)
        assert set(limits) == {"4500ms"}

    def test_whoever_comes_while_another_upgrades_is_told_so(
        self, url, engine, filled, monkeypatch
    ):
        make_first_tables(engine, filled)
        monkeypatch.setattr(schema, "_PATIENCE", 0.0)
        other = build_engine(url)
        told = pytest.raises(LedgerUnavailable, match="by another process")
        with LEDGER.alone(other), told:
            Both(LedgerDatabase(engine)).get_failure_stats()
        other.dispose()
        assert Both(LedgerDatabase(engine)).get_failure_stats().total

    def test_entries_filed_by_the_release_before_are_found_by_a_recount(self, engine, filled):
        LEDGER.make_ready(engine)
        with engine.begin() as connection:  # it knows nothing of counts
            connection.execute(insert(ledger_entries), filled[ledger_entries])
            assert connection.scalar(select(func.count()).select_from(ledger_counts)) == 0
        assert all(step.wrong for step in SqlUpkeep(LedgerDatabase(engine)).recount(fix=True))
        assert_counts_are_exact(Both(LedgerDatabase(engine)))
