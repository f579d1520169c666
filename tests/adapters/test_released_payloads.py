"""What letters of the ledger held in payload stores, on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.ledger import letter_of, resolve

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.adapters.sql.ledger.released_payloads import SqlReleasedPayloads
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.payload_upkeep import LettersBodies, UnneededBodies
from angzarr.dead_letters.holding_queue import payload_hold
from angzarr.errors import StoreUnavailable
from angzarr.payloads.collector import CollectionTerms, PayloadCollector, PayloadState
from angzarr.payloads.holders import holding, letter_holder
from hand_clock import HandClock
from memory_payloads import MemoryPayloadStore


class ReleasedPayloadsContract:
    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def ledger(self, database, clock):
        return SqlLedger(database, clock)

    @pytest.fixture
    def released(self, database):
        return SqlReleasedPayloads(database)

    @pytest.fixture
    def holders(self, clock):
        return MemoryPayloadHolders(clock)

    @pytest.fixture
    def bodies(self, clock):
        return MemoryPayloadStore(clock)

    @pytest.fixture
    def make(self, holders, bodies):
        """Make a letter whose body lies in the store, which it holds."""

        def make(event_id="e1", replay=0, body=b"body"):
            letter = letter_of(event_id, replay)
            name = holding(holders, letter_holder(letter.id))
            return replace(letter, payload=bodies.put(body, name))

        return make

    @staticmethod
    def close(ledger, entry, clock):
        assert resolve(ledger, entry.id)
        clock.sleep(timedelta(hours=1))

    @staticmethod
    def prune(ledger, clock):
        return ledger.prune({Status.RESOLVED: clock.now()}, limit=10)

    def test_an_entry_that_is_removed_releases_its_body_and_no_other(
        self, ledger, released, clock, make
    ):
        letter, other = make("e1"), make("e2", body=b"other")
        entry, _ = ledger.add_failed_events([letter, other])
        self.close(ledger, entry, clock)
        assert released.read(10) == []
        assert self.prune(ledger, clock) == 1
        [told] = released.read(10)
        assert told.hold == payload_hold(letter)
        released.forget([told.number])
        released.forget([told.number])
        assert released.read(10) == []

    def test_a_letter_in_the_place_of_another_releases_that_ones_body(self, ledger, released, make):
        first, second = make(replay=0), make(replay=1)
        assert first.payload.uri == second.payload.uri
        ledger.add_failed_event(first)
        ledger.add_failed_event(first)
        assert released.read(10) == []
        ledger.add_failed_event(second)
        assert [one.hold for one in released.read(10)] == [payload_hold(first)]

    def test_an_older_letter_that_comes_late_is_counted_and_releases_its_body(
        self, ledger, released, make
    ):
        ledger.add_failed_event(make(replay=1))
        ledger.add_failed_event(late := make(replay=0))
        assert [one.hold for one in released.read(10)] == [payload_hold(late)]

    def test_letters_that_come_together_leave_one_that_holds(self, ledger, released, make):
        letters = [make(replay=number) for number in range(3)]
        ledger.add_failed_events([letters[1], letters[0], letters[2]])
        assert {one.hold for one in released.read(10)} == {payload_hold(one) for one in letters[:2]}

    def test_letters_that_hold_nothing_release_nothing(self, ledger, released, clock):
        entry = ledger.add_failed_event(letter_of())
        ledger.add_failed_event(letter_of(replay=1))
        self.close(ledger, entry, clock)
        assert self.prune(ledger, clock) == 1
        assert released.read(10) == []

    def test_upkeep_ends_the_holds_and_then_deletes_the_bodies(
        self, ledger, released, holders, bodies, clock, make
    ):
        entries = ledger.add_failed_events([make("e1"), make("e2", body=b"other")])
        self.close(ledger, entries[0], clock)
        self.prune(ledger, clock)
        upkeep = LettersBodies(released, holders)
        collecting = UnneededBodies(
            PayloadCollector(
                register=holders, store=bodies, terms=CollectionTerms(grace=timedelta(days=2))
            )
        )
        assert collecting.remove(clock.now()) == (0, False)
        assert upkeep.remove(clock.now()) == (1, False)
        assert upkeep.remove(clock.now()) == (0, False)
        assert holders.count()[PayloadState.FREE].bodies == 1
        clock.sleep(timedelta(days=2))
        assert collecting.remove(clock.now()) == (1, False)
        assert list(bodies.payloads.values()) == [b"other"]

    def test_a_register_that_is_away_keeps_what_is_to_end(
        self, ledger, released, holders, clock, make, monkeypatch
    ):
        entry = ledger.add_failed_event(make())
        self.close(ledger, entry, clock)
        self.prune(ledger, clock)

        def away(_holds):
            raise StoreUnavailable("redis is away")

        with monkeypatch.context() as patch:
            patch.setattr(holders, "release", away)
            with pytest.raises(StoreUnavailable):
                LettersBodies(released, holders).remove(clock.now())
        assert len(released.read(10)) == 1
        LettersBodies(released, holders).remove(clock.now())
        assert released.read(10) == []


class TestSqliteReleasedPayloads(OnSqlite, ReleasedPayloadsContract):
    pass


class TestPostgresqlReleasedPayloads(OnPostgresql, ReleasedPayloadsContract):
    pass
