from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, text, update
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.ledger import LedgerContract, letter_of

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import ledger_letters
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.errors import LedgerUnavailable

END_OTHER_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database()
"""


class SqlLedgerContract(LedgerContract):
    @pytest.fixture
    def ledger(self, database, clock):
        return SqlLedger(database, clock)

    def test_a_missing_table_is_unavailable_and_no_letters_fault(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        database = ledger._database
        for sql in ("ALTER TABLE ledger_letters RENAME TO away", "ALTER TABLE away RENAME TO {}"):
            statement = text(sql.format("ledger_letters"))
            if "away RENAME" in sql:
                with pytest.raises(LedgerUnavailable, match="ledger_letters"):
                    ledger.add_failed_event(letter_of("e2"))
            database.write(lambda connection, one=statement: connection.execute(one))
        assert ledger.open(entry.id).entry == entry


class TestSqliteLedger(OnSqlite, SqlLedgerContract):
    def test_entries_outlive_the_process_that_filed_them(self, url, clock, ledger):
        entry = ledger.add_failed_event(letter_of())
        ledger.close()
        again = SqlLedger(LedgerDatabase(build_engine(url)), clock)
        assert again.open(entry.id).failure == letter_of()
        again.close()

    def test_workers_that_start_together_create_the_tables_once(self, url, clock):
        ledgers = [SqlLedger(LedgerDatabase(build_engine(url)), clock) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            filed = list(pool.map(lambda one: one.add_failed_event(letter_of()), ledgers))
        for one in ledgers:
            one.close()
        assert len({entry.id for entry in filed}) == 1

    def test_damaged_copy_of_a_letter_is_shown_as_unreadable(self, engine, ledger):
        entry = ledger.add_failed_event(letter_of())
        with engine.begin() as connection:
            connection.execute(update(ledger_letters).values(body=b"\xff\xff"))
        failure = ledger.open(entry.id).failure
        assert isinstance(failure, Unreadable)
        assert failure.raw == b"\xff\xff"

    def test_damaged_database_is_unavailable_and_no_letters_fault(self, tmp_path, clock):
        file = tmp_path / "damaged.db"
        file.write_bytes(b"no database at all" * 100)
        ledger = SqlLedger(LedgerDatabase(build_engine(f"sqlite:///{file}")), clock)
        with pytest.raises(LedgerUnavailable, match="not a database"):
            ledger.add_failed_event(letter_of())
        ledger.close()


class TestPostgresqlLedger(OnPostgresql, SqlLedgerContract):
    def test_closed_connections_are_opened_again(self, postgresql_url, ledger):
        entry = ledger.add_failed_event(letter_of())
        other = build_engine(postgresql_url)
        with other.connect() as connection:
            assert connection.execute(text(END_OTHER_SESSIONS)).all()
        other.dispose()
        assert ledger.open(entry.id).entry == entry

    @pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati"])
    def test_the_zero_time_comes_back_whatever_zone_the_server_tells(
        self, monkeypatch, postgresql_url, ledger, clock, zone
    ):
        """One letter dated 0001-01-01 would end the view of all others."""
        monkeypatch.setenv("PGTZ", zone)
        there = SqlLedger(LedgerDatabase(build_engine(postgresql_url)), clock)
        zero = datetime(1, 1, 1, tzinfo=UTC)
        old = letter_of("e1", first_attempt_at=zero, last_attempt_at=zero, sent_to_dlq_at=zero)
        entries = there.add_failed_events([old, letter_of("e2")])
        try:
            page = there.get_failed_events(EntryFilter(), status=None, limit=9)
            assert {one.id: one for one in page.entries} == {one.id: one for one in entries}
            assert page.entries[-1].last_failed_at == zero
            assert there.open(entries[0].id).failure == old
            assert there.get_failure_stats().oldest_open_at == zero
        finally:
            there.close()

    def test_a_page_that_takes_too_long_says_how_to_narrow_it(self, engine, ledger):
        ledger.add_failed_event(letter_of())

        def slow(connection, _cursor, statement, parameters, *_rest):
            if "correlation_id = " in statement:
                connection.exec_driver_sql("SET LOCAL statement_timeout = '10ms'")
                return "SELECT pg_sleep(60)", ()
            return statement, parameters

        event.listen(engine, "before_cursor_execute", slow, retval=True)
        try:
            with pytest.raises(LedgerUnavailable, match=r"since, until\), a handler"):
                ledger.get_failed_events(EntryFilter(correlation_id="c1"), status=None)
        finally:
            event.remove(engine, "before_cursor_execute", slow)
        found = ledger.get_failed_events(EntryFilter(correlation_id="c1"), status=None)
        assert len(found.entries) == 1
