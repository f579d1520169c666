"""What letters of the ledger held in payload stores, on both databases."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.ledger import HOLD, LEASE, letter_of, resolve

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.adapters.sql.ledger.released_payloads import SqlReleasedPayloads
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import ledger_letters
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.ledger.payload_upkeep import LettersBodies, UnneededBodies
from angzarr.analysis.ledger.replay_options import ReplayOrder
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

        def make(event_id="e1", replay=0, body=b"body", later=timedelta(0)):
            letter = letter_of(event_id, replay)
            letter = replace(letter, sent_to_dlq_at=letter.sent_to_dlq_at + later)
            name = holding(holders, letter_holder(letter.id, letter.sent_to_dlq_at))
            return replace(letter, payload=bodies.put(body, name))

        return make

    @staticmethod
    def close(ledger, entry, clock):
        assert resolve(ledger, entry.id)
        clock.sleep(timedelta(hours=1))

    @staticmethod
    def edit(ledger, entry, before):
        """Begin the next replay of *entry* with an edit of *before*."""
        entry = ledger.open(entry.id).entry
        edited = replace(before, payload=None)
        begun = ledger.mark_retrying(
            entry.id, entry.replays + 1, revision=entry.revision, by="me", lease=LEASE,
            order=ReplayOrder(letter=edited, before=before, said="/total"),
        )  # fmt: skip
        assert begun
        return begun

    @staticmethod
    def collecting(holders, bodies):
        """What deletes bodies that nothing needs."""
        terms = CollectionTerms(grace=timedelta(days=2))
        return UnneededBodies(PayloadCollector(register=holders, store=bodies, terms=terms))

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

    def test_a_second_letter_of_one_failure_releases_its_body(self, ledger, released, make):
        """Its worker died behind the first one, and another worker made the second."""
        first, second = make(), make(later=timedelta(days=1))
        assert payload_hold(first) != payload_hold(second)
        ledger.add_failed_event(first)
        ledger.add_failed_events([make(later=timedelta(seconds=3)), first])
        assert released.read(10) == [], "on one day they hold by one name"
        ledger.add_failed_events([second, first])
        assert [one.hold for one in released.read(10)] == [payload_hold(second)]

    def test_an_event_that_fails_anew_keeps_its_body_whatever_was_to_end(
        self, ledger, released, holders, clock, make
    ):
        first = make()
        self.close(ledger, ledger.add_failed_event(first), clock)
        self.prune(ledger, clock)
        anew = make(later=timedelta(days=9))
        assert anew.payload.uri == first.payload.uri
        LettersBodies(released, holders).remove(clock.now())
        assert holders.holders_of(anew.payload.uri) == {payload_hold(anew).holder}
        ledger.add_failed_event(anew)
        LettersBodies(released, holders).remove(clock.now())
        assert holders.holders_of(anew.payload.uri) == {payload_hold(anew).holder}

    def test_a_letter_that_comes_again_behind_its_removed_entry_keeps_its_body(
        self, ledger, released, holders, clock, make
    ):
        letter, other = make("e1"), make("e2", body=b"other")
        entries = ledger.add_failed_events([letter, other])
        for entry in entries:
            self.close(ledger, entry, clock)
        assert self.prune(ledger, clock) == 2
        ledger.add_failed_event(letter)
        LettersBodies(released, holders).remove(clock.now())
        assert released.read(10) == []
        assert len(holders.holders_of(letter.payload.uri)) == 1
        assert holders.holders_of(other.payload.uri) == set()

    @pytest.mark.parametrize("overtaken", [False, True], ids=["alone", "overtaken by another"])
    @pytest.mark.parametrize("killed", [False, True], ids=["", "killed before it forgets"])
    def test_a_letter_that_is_filed_again_while_its_hold_ends_keeps_its_body(
        self, ledger, released, holders, bodies, clock, make, monkeypatch, overtaken, killed
    ):
        letter = make()
        self.close(ledger, ledger.add_failed_event(letter), clock)
        self.prune(ledger, clock)
        upkeep, end, forget = LettersBodies(released, holders), holders.release, released.forget

        def late(holds):
            """End *holds* that were read before the letter was filed once more."""
            monkeypatch.undo()
            ledger.add_failed_event(letter)
            if overtaken:
                upkeep.remove(clock.now())
            if killed:
                monkeypatch.setattr(released, "forget", lambda _numbers: 1 / 0)
            end(holds)

        monkeypatch.setattr(holders, "release", late)
        with suppress(ZeroDivisionError):
            upkeep.remove(clock.now())
        monkeypatch.undo()
        assert (released.forget, holders.release) == (forget, end)
        upkeep.remove(clock.now())
        assert released.read(10) == []
        self.assert_is_kept_until_its_entry_is_removed(
            letter, ledger, released, holders, bodies, clock
        )

    def test_a_letter_may_be_filed_again_and_again_before_its_hold_ends(
        self, ledger, released, holders, bodies, clock, make
    ):
        letter = make()
        for _ in range(3):
            self.close(ledger, ledger.add_failed_event(letter), clock)
            self.prune(ledger, clock)
        ledger.add_failed_event(letter)
        LettersBodies(released, holders).remove(clock.now())
        self.assert_is_kept_until_its_entry_is_removed(
            letter, ledger, released, holders, bodies, clock
        )

    def assert_is_kept_until_its_entry_is_removed(
        self, letter, ledger, released, holders, bodies, clock
    ):
        collecting = self.collecting(holders, bodies)
        clock.sleep(timedelta(days=9))
        assert collecting.remove(clock.now()) == (0, False)
        assert bodies.fetch(letter.payload) == b"body"
        [entry] = ledger.get_failed_events().entries
        self.close(ledger, entry, clock)
        self.prune(ledger, clock)
        LettersBodies(released, holders).remove(clock.now())
        assert holders.holders_of(letter.payload.uri) == set()

    # -- edits ---------------------------------------------------------------------------------

    def test_the_body_before_an_edit_is_held_for_as_long_as_its_entry_shows_it(
        self, ledger, released, holders, bodies, clock, make
    ):
        first = make(replay=0)
        entry = ledger.add_failed_event(first)
        self.edit(ledger, entry, first)
        ledger.add_failed_event(make(replay=1, body=b"edited"))
        assert ledger.open(entry.id).before == first
        assert released.read(10) == []
        LettersBodies(released, holders).remove(clock.now())
        assert holders.holders_of(first.payload.uri) == {payload_hold(first).holder}
        collecting = self.collecting(holders, bodies)
        clock.sleep(timedelta(days=9))
        assert collecting.remove(clock.now()) == (0, False)
        assert bodies.fetch(ledger.open(entry.id).before.payload) == b"body"
        self.close(ledger, entry, clock)
        assert self.prune(ledger, clock) == 1
        assert {one.hold.uri for one in released.read(10)} == {
            first.payload.uri, make(replay=1, body=b"edited").payload.uri,
        }  # fmt: skip

    def test_a_newer_edit_releases_the_body_before_the_older_one(self, ledger, released, make):
        first, second = make(replay=0), make(replay=1, body=b"edited")
        entry = ledger.add_failed_event(first)
        self.edit(ledger, entry, first)
        ledger.add_failed_event(second)
        self.edit(ledger, entry, second)
        assert ledger.open(entry.id).before == second
        assert [one.hold for one in released.read(10)] == [payload_hold(first)]
        ledger.add_failed_event(make(replay=2, body=b"twice"))
        assert [one.hold for one in released.read(10)] == [payload_hold(first)]

    def test_an_edit_that_is_sent_again_holds_its_body_once(self, ledger, released, clock, make):
        first = make(replay=0)
        entry = ledger.add_failed_event(first)
        begun = self.edit(ledger, entry, first)
        unanswered = Decided(entry_id=entry.id, revision=begun.revision, decision=HOLD)
        assert ledger.decide([unanswered], by="me") == [True]
        again = self.edit(ledger, entry, first)
        assert released.read(10) == []
        assert ledger.mark_answered(entry.id, again.replays, by="replay 2 (handled)")
        clock.sleep(timedelta(hours=1))
        assert self.prune(ledger, clock) == 1
        assert [one.hold for one in released.read(10)] == [payload_hold(first)]

    def test_a_replay_without_an_edit_releases_nothing(self, ledger, released, make):
        first = make(replay=0)
        entry = ledger.add_failed_event(first)
        begun = self.edit(ledger, entry, first)
        ledger.add_failed_event(letter_of(replay=1))
        entry = ledger.open(entry.id).entry
        assert ledger.mark_retrying(
            entry.id, begun.replays + 1, revision=entry.revision, by="me", lease=LEASE,
            order=ReplayOrder(to_queue="elsewhere"),
        )  # fmt: skip
        assert ledger.open(entry.id).before == first
        assert released.read(10) == []

    @pytest.mark.parametrize("name", ["an older release's", "a letter's that was filed again"])
    def test_the_body_before_an_edit_is_held_by_the_name_that_its_entry_has(
        self, ledger, released, holders, clock, make, name, database
    ):
        first = make(replay=0)
        entry = ledger.add_failed_event(first)
        if name == "an older release's":
            self.rename(holders, database, first, f"letter:{first.id}")
        else:
            self.close(ledger, entry, clock)
            self.prune(ledger, clock)
            entry = ledger.add_failed_event(first)
            LettersBodies(released, holders).remove(clock.now())
        held = holders.holders_of(first.payload.uri)
        self.edit(ledger, entry, first)
        ledger.add_failed_event(letter_of(replay=1))
        assert ledger.open(entry.id).before == first
        LettersBodies(released, holders).remove(clock.now())
        assert len(held) == 1
        assert holders.holders_of(first.payload.uri) == held
        self.close(ledger, entry, clock)
        assert self.prune(ledger, clock) == 1
        LettersBodies(released, holders).remove(clock.now())
        assert holders.holders_of(first.payload.uri) == set()

    def test_a_letter_that_an_older_release_filed_and_comes_again_keeps_its_body(
        self, ledger, released, holders, clock, make, database
    ):
        letter = make()
        ledger.add_failed_event(letter)
        with database.engine.begin() as connection:
            connection.execute(update(ledger_letters).values(payload_holder=f"letter:{letter.id}"))
        ledger.add_failed_event(letter)
        LettersBodies(released, holders).remove(clock.now())
        assert holders.holders_of(letter.payload.uri) == {payload_hold(letter).holder}

    @staticmethod
    def rename(holders, database, letter, holder):
        """Let *letter* be held by *holder*, in the register and in the ledger."""
        hold = payload_hold(letter)
        assert holders.join([hold._replace(holder=holder)]) == [True]
        holders.release([hold])
        with database.engine.begin() as connection:
            connection.execute(update(ledger_letters).values(payload_holder=holder))

    # -- many ----------------------------------------------------------------------------------

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
        collecting = self.collecting(holders, bodies)
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
