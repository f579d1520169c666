"""What everybody who knows how other events fare does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of, resolve
from tests.hand_clock import START, HandClock

from angzarr.analysis.ledger.counts import MOST, Peers, PeerStats
from angzarr.analysis.ledger.ledger import Ledger

LATELY = START - timedelta(minutes=5)


class PeersContract:
    """The suite; `peers` asks `ledger`, which begins empty and reads `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def ledger(self, clock: HandClock) -> Ledger:
        raise NotImplementedError

    @pytest.fixture
    def peers(self, ledger: Ledger) -> Peers:
        raise NotImplementedError

    @staticmethod
    def handled(ledger, event_id, clock):
        entry = ledger.add_failed_event(letter_of(event_id, fingerprint="crm"))
        ledger.mark_retrying(
            entry.id, 1, revision=entry.revision, by="me", lease=timedelta(minutes=1)
        )
        ledger.mark_published(entry.id, 1, answer_by=clock.now())
        assert ledger.mark_answered(entry.id, 1, by="replay 1 (handled)")

    def test_handlers_and_groups_are_counted_apart(self, peers, ledger, clock):
        for number in range(3):
            ledger.add_failed_event(letter_of(f"e{number}", fingerprint="crm"))
        ledger.add_failed_event(letter_of("other", handler="mail.send", fingerprint="smtp"))
        self.handled(ledger, "done", clock)
        seen = peers.fared(["orders.sync", "mail.send"], ["crm", "nothing"], LATELY)
        assert seen.handlers == {
            "orders.sync": PeerStats(events=4, failed=3, handled=1),
            "mail.send": PeerStats(events=1, failed=1),
        }
        assert seen.groups == {
            "crm": PeerStats(events=4, failed=3, handled=1),
            "nothing": PeerStats(),
        }

    def test_what_was_long_ago_is_counted_and_not_lately(self, peers, ledger, clock):
        ledger.add_failed_event(letter_of("e1", fingerprint="crm"))
        self.handled(ledger, "e2", clock)
        seen = peers.fared([], ["crm"], START + timedelta(minutes=1))
        assert seen.groups == {"crm": PeerStats(events=2)}

    def test_what_a_person_closed_says_nothing_of_the_dependency(self, peers, ledger):
        entry = ledger.add_failed_event(letter_of(fingerprint="crm"))
        assert resolve(ledger, entry.id, "ann")
        assert peers.fared([], ["crm"], LATELY).groups == {"crm": PeerStats(events=1)}

    def test_a_large_group_is_not_counted_to_its_end(self, peers, ledger):
        ledger.add_failed_events(
            [letter_of(f"e{number}", fingerprint="crm") for number in range(MOST + 5)]
        )
        assert peers.fared([], ["crm"], LATELY).groups["crm"].events == MOST

    def test_nobody_asked_after_is_no_question(self, peers):
        assert not peers.fared([], [], LATELY).groups

    def test_names_that_no_column_can_hold_are_no_error(self, peers, ledger):
        name = "x" * 3000 + "\x00"
        ledger.add_failed_event(letter_of(handler=name, fingerprint="crm"))
        assert name in peers.fared([name], [], LATELY).handlers
