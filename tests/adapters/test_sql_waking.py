"""What is due while nearly all of it sleeps on: an index leads to it past all that does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, insert, text
from tests.contracts.ledger import LEASE, letter_of
from tests.hand_clock import START, HandClock

from angzarr.adapters.sql.engine import build_engine
from angzarr.adapters.sql.ledger import SqlLedger
from angzarr.adapters.sql.ledger_database import LedgerDatabase
from angzarr.adapters.sql.ledger_rows import entry_row
from angzarr.adapters.sql.ledger_tables import METADATA, ledger_entries
from angzarr.analysis import transition
from angzarr.analysis.brake import BrakeState, Scope, asleep
from angzarr.analysis.entry import Status
from angzarr.analysis.quiet_hours import QuietHours

ASLEEP = 2_000
UTC = ZoneInfo("UTC")
SCOPES = (Scope.NOTHING, Scope.AUTOMATIC, Scope.ALL)


def rows(count: int) -> Iterator[dict[str, object]]:
    """Return entries that are due and that the brake holds, and as many that are not due."""
    for number in range(count):
        entry = transition.filed(letter_of(f"e{number}", fingerprint="many"), START).entry
        due, later = {"wake_at": START}, {"wake_at": START + timedelta(days=1)}
        statuses = (Status.WAITING, Status.RETRYING, Status.COMPENSATED)
        yield entry_row(entry) | due | {"status": statuses[number % 3].value}
        yield entry_row(entry) | later | {"id": f"later{number}"}
        done = {"id": f"done{number}", "status": Status.COMPENSATED.value, "wake_at": None}
        yield entry_row(entry) | done


class WakingContract:
    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def ledger(self, engine, clock):
        ledger = SqlLedger(LedgerDatabase(engine), clock)
        ledger.add_failed_events([letter_of("awake1"), letter_of("awake2")])
        with engine.begin() as connection:
            connection.execute(insert(ledger_entries), list(rows(ASLEEP)))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
        clock.sleep(timedelta(hours=1))
        return ledger

    @pytest.fixture
    def asked(self, ledger, engine):
        """Ask for what is due, and return the questions with their parameters."""

        def ask(besides):
            said = []

            def hear(_connection, _cursor, statement, parameters, *_rest):
                if "SELECT" in statement and "ledger_entries" in statement:
                    said.append((statement, parameters))

            event.listen(engine, "before_cursor_execute", hear)
            try:
                taken = ledger.due(limit=10, lease=LEASE, besides=besides)
            finally:
                event.remove(engine, "before_cursor_execute", hear)
            return taken, said

        return ask

    @pytest.mark.parametrize("scope", SCOPES)
    def test_no_question_reads_more_than_it_takes(self, asked, engine, clock, scope):
        besides = asleep(BrakeState(scope=scope), QuietHours(place=UTC), clock.now())
        taken, questions = asked(besides)
        assert len(questions) == 4 - len(besides)
        assert not {one.status for one in taken} & besides
        if scope is Scope.ALL:
            assert {one.event_id for one in taken} == {"awake1", "awake2"}
        for question in questions:
            with engine.connect() as connection:
                self.assert_reads_few(connection, *question)


class TestSqliteWaking(WakingContract):
    @pytest.fixture
    def engine(self, tmp_path):
        engine = build_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
        yield engine
        engine.dispose()

    def assert_reads_few(self, connection, statement, parameters):
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        (step,) = [row.detail for row in plan]  # no step that sorts
        assert re.search(r"USING INDEX ledger_entries_due \(status=\? AND wake_at<\?\)", step)


class TestPostgresqlWaking(WakingContract):
    @pytest.fixture
    def engine(self, postgresql_url):
        engine = build_engine(postgresql_url)
        METADATA.drop_all(engine)
        yield engine
        METADATA.drop_all(engine)
        engine.dispose()

    def assert_reads_few(self, connection, statement, parameters):
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        found = connection.exec_driver_sql(explain, parameters).scalar()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        steps = list(steps_of(plan))
        assert {one.get("Index Name") for one in steps} & {"ledger_entries_due"}
        assert not {"Seq Scan", "Sort"} & {one["Node Type"] for one in steps}
        assert all(one["Actual Rows"] <= 10 for one in steps)
        assert not any(one.get("Rows Removed by Filter") for one in steps)


def steps_of(plan):
    yield plan
    for one in plan.get("Plans", ()):
        yield from steps_of(one)
