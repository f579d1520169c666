"""Questions that are asked all day read what they take and no more, whatever lies beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, insert, text
from tests.conftest import own_database
from tests.contracts.ledger import LEASE, letter_of
from tests.hand_clock import START, HandClock

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger import paging as ledger_merging
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import entry_row, ledger_entries
from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.emergency_stop import BrakeState, QuietHours, Scope, asleep
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import EntryFilter

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


def fill(url: str) -> None:
    """Fill the ledger that each test has a copy of: that is much faster than to fill each."""
    engine = build_engine(url, power_safe=False)
    ledger = SqlLedger(LedgerDatabase(engine), HandClock())
    ledger.add_failed_events([letter_of("awake1"), letter_of("awake2")])
    with engine.begin() as connection:
        connection.execute(insert(ledger_entries), list(rows(ASLEEP)))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    engine.dispose()


class PlansContract:
    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, power_safe=False)
        yield engine
        engine.dispose()

    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def ledger(self, engine, clock):
        clock.sleep(timedelta(hours=1))
        return SqlLedger(LedgerDatabase(engine), clock)

    @pytest.fixture
    def asked(self, ledger, engine):
        """Return what a verb of the ledger returns, and its questions with their parameters."""

        def ask(verb):
            said = []

            def hear(_connection, _cursor, statement, parameters, *_rest):
                if "SELECT" in statement and "ledger_entries" in statement:
                    said.append((statement, parameters))

            event.listen(engine, "before_cursor_execute", hear)
            try:
                taken = verb()
            finally:
                event.remove(engine, "before_cursor_execute", hear)
            return taken, said

        return ask

    @pytest.mark.parametrize("scope", SCOPES)
    def test_what_is_due_is_found_past_all_that_sleeps_on(
        self, ledger, asked, engine, clock, scope
    ):
        besides = asleep(BrakeState(scope=scope), QuietHours(place=UTC), clock.now())
        taken, questions = asked(lambda: ledger.due(limit=10, lease=LEASE, besides=besides))
        assert len(questions) == len(transition.WAKES - besides)
        assert not {one.status for one in taken} & besides
        if scope is Scope.ALL:
            assert {one.event_id for one in taken} == {"awake1", "awake2"}
        for question in questions:
            with engine.connect() as connection:
                self.assert_reads_few(connection, "ledger_entries_due", *question)

    @pytest.mark.parametrize(
        ("asked_for", "index"),
        [
            ({"root": "rare"}, "ledger_entries_by_root"),
            ({"correlation_id": "rare"}, "ledger_entries_by_correlation"),
        ],
    )
    @pytest.mark.parametrize(
        "besides", [{}, {"handler_name": "orders.sync"}, {"tenant_id": "acme"},
                    {"fingerprint": "many"}, {"domain": "order"}],
        ids=lambda one: "".join(one) or "alone",
    )  # fmt: skip
    @pytest.mark.parametrize("status", [None, Status.HELD])
    def test_what_few_entries_share_comes_from_its_index(
        self, ledger, asked, engine, asked_for, index, besides, status
    ):
        with engine.begin() as connection:
            entry = transition.filed(letter_of("one", fingerprint="many"), START).entry
            one = entry_row(entry) | asked_for | {"status": Status.HELD.value}
            connection.execute(insert(ledger_entries), [one])
        wanted = EntryFilter(**asked_for, **besides)
        page, questions = asked(lambda: ledger.get_failed_events(wanted, status=status, limit=2))
        assert [found.event_id for found in page.entries] == ["one"]
        with engine.connect() as connection:
            for question in questions:
                self.assert_reads_few(connection, index, *question)

    @pytest.mark.parametrize("limit", [1, 10])
    def test_the_oldest_open_entries_come_from_their_index(self, ledger, asked, engine, limit):
        taken, (question,) = asked(lambda: ledger.oldest_open(limit=limit))
        assert len(taken) == limit
        with engine.connect() as connection:
            self.assert_reads_few(connection, "ledger_entries_open_since", *question)


class TestSqlitePlans(PlansContract):
    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, tmp_path_factory):
        file = tmp_path_factory.mktemp("filled") / "ledger.db"
        fill(f"sqlite:///{file}")
        return file

    @pytest.fixture
    def url(self, filled, tmp_path):
        return f"sqlite:///{shutil.copy(filled, tmp_path / 'ledger.db')}"

    def assert_reads_few(self, connection, index, statement, parameters):
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps = [one.detail for one in plan]
        assert any(f"USING INDEX {index}" in step for step in steps)
        if index == "ledger_entries_due":  # nothing is sorted
            (step,) = steps
            assert "(status=? AND wake_at<?)" in step

    def test_a_handlers_entries_of_a_large_tenant_come_from_the_index_of_groups(
        self, ledger, asked, engine, monkeypatch
    ):
        monkeypatch.setattr(ledger_merging, "_FEW", 10)
        wanted = EntryFilter(handler_name="orders.sync", tenant_id="acme")
        page, questions = asked(lambda: ledger.get_failed_events(wanted, status=None, limit=1))
        assert len(page.entries) == 1
        with engine.connect() as connection:
            self.assert_reads_few(connection, "ledger_entries_of_group", *questions[-1])


class TestPostgresqlPlans(PlansContract):
    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, session_name):
        name = f"{session_name}-filled"
        with own_database(name) as url:
            fill(url)
            yield name

    @pytest.fixture
    def url(self, filled, session_name, unique_name):
        with own_database(f"{session_name}-{unique_name}", like=filled) as url:
            yield url

    def assert_reads_few(self, connection, index, statement, parameters):
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        found = connection.exec_driver_sql(explain, parameters).scalar()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        steps = list(steps_of(plan))
        assert {one.get("Index Name") for one in steps} & {index}
        assert not {"Seq Scan", "Sort"} & {one["Node Type"] for one in steps}
        assert all(one["Actual Rows"] <= 10 for one in steps)
        assert not any(one.get("Rows Removed by Filter") for one in steps)


def steps_of(plan):
    yield plan
    for one in plan.get("Plans", ()):
        yield from steps_of(one)
