from __future__ import annotations

import pytest
from sqlalchemy import delete, update
from tests.adapters.sql_ledger import Both
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.groups import ALL, GroupsContract, Hand, assert_counts_are_exact, decide
from tests.contracts.ledger import letter_of

from angzarr.adapters.sql.ledger.database import SqlUpkeep
from angzarr.adapters.sql.ledger.tables import ledger_counts, ledger_groups


class SqlGroupsContract(GroupsContract):
    """The suite on SQL, and what only a database can have: counts that went wrong."""

    @pytest.fixture
    def ledger(self, database, clock):
        return Both(database, clock)

    @pytest.fixture
    def upkeep(self, database):
        return SqlUpkeep(database)

    def test_recount_of_what_is_right_finds_nothing(self, ledger, upkeep):
        hand = Hand(ledger, seed=5)
        for _ in range(15):
            hand.move()
        (step,) = upkeep.recount(fix=True)
        assert step.wrong == ()
        assert step.groups == len(ledger.get_groups(ALL).groups)

    @pytest.mark.parametrize(
        "damage",
        [
            delete(ledger_groups).where(ledger_groups.c.fingerprint == "f1"),
            delete(ledger_counts).where(ledger_counts.c.fingerprint == "f1"),
            update(ledger_counts).values(entries=7).where(ledger_counts.c.fingerprint == "f1"),
            update(ledger_counts).values(status="held").where(ledger_counts.c.fingerprint == "f1"),
            update(ledger_groups).values(open_entries=9).where(ledger_groups.c.fingerprint == "f1"),
            update(ledger_groups).values(occurrences=9).where(ledger_groups.c.fingerprint == "f1"),
        ],
        ids=["group gone", "counts gone", "too many", "wrong kind", "open", "letters"],
    )
    def test_recount_mends_what_drifted_and_says_so(self, ledger, upkeep, engine, damage):
        letters = [letter_of(f"e{n}", fingerprint=f"f{n % 3}") for n in range(9)]
        for entry in ledger.add_failed_events(letters)[:4]:
            decide(ledger, entry)
        with engine.begin() as connection:
            connection.execute(damage)
        (told,) = upkeep.recount(fix=False)
        assert told.wrong == ("f1",)
        assert [step.wrong for step in upkeep.recount(fix=True)] == [("f1",)]
        assert [step.wrong for step in upkeep.recount(fix=True)] == [()]
        assert_counts_are_exact(ledger)

    def test_recount_goes_on_step_by_step(self, ledger, upkeep, monkeypatch):
        monkeypatch.setattr("angzarr.adapters.sql.ledger.counts._STEP", 2)
        ledger.add_failed_events([letter_of(f"e{n}", fingerprint=f"f{n}") for n in range(5)])
        assert [step.groups for step in upkeep.recount(fix=True)] == [2, 2, 1]


class TestSqliteGroups(OnSqlite, SqlGroupsContract):
    @pytest.mark.parametrize(("some", "newest", "most"), [(0, 5, 200), (0, 5, 0)])
    def test_pages_are_the_same_however_they_are_read(
        self, ledger, monkeypatch, some, newest, most
    ):
        for name, value in (("_SOME", some), ("_NEWEST", newest), ("_MOST", most)):
            monkeypatch.setattr(f"angzarr.adapters.sql.ledger.paging.{name}", value)
        self.test_every_filter_finds_what_a_look_at_every_entry_finds(ledger)


class TestPostgresqlGroups(OnPostgresql, SqlGroupsContract):
    pass
