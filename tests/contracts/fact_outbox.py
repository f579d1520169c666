"""What every outbox of facts must do, and every claim store that puts facts there."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.contracts.idempotency import ENDINGS, fresh

from angzarr.facts.outbox import FactOutbox
from angzarr.resilience.idempotency import Claim, ClaimEnd, Complete, IdempotencyStore, Position

#: The bound of a small outbox.
FEW = 500

ODD = ['{"quote":"\\u2028 \\" \' %s :x","n":1}', "{}", "x" * 100_000]


class FactOutboxContract:
    """Subclasses give `make_outbox` (bound → empty outbox) and `make_claims` (outbox → store)."""

    @pytest.fixture
    def make_outbox(self) -> Callable[[int], FactOutbox]:
        raise NotImplementedError

    @pytest.fixture
    def make_claims(self) -> Callable[[FactOutbox], IdempotencyStore]:
        raise NotImplementedError

    @pytest.fixture
    def outbox(self, make_outbox):
        return make_outbox(1_000_000)

    @pytest.fixture
    def store(self, make_claims, outbox):
        return make_claims(outbox)

    # -- the outbox alone ----------------------------------------------------------------------

    def test_facts_are_read_in_the_order_in_which_they_came_and_stay(self, outbox):
        outbox.put(["a", "b"])
        outbox.put([])
        outbox.put(["c"])
        assert texts(outbox) == texts(outbox) == ["a", "b", "c"]
        assert [one.text for one in outbox.read(2)] == ["a", "b"]
        assert outbox.trim() == (3, 0)

    def test_an_empty_outbox_says_so(self, outbox):
        assert outbox.read(10) == []
        assert outbox.trim() == (0, 0)
        outbox.remove([])

    def test_what_was_removed_is_gone_and_nothing_else(self, outbox):
        outbox.put(["a", "b", "c"])
        places = [one.place for one in outbox.read(10)]
        outbox.remove([places[0], places[2]])
        outbox.remove([places[0]])
        assert texts(outbox) == ["b"]

    def test_a_place_is_never_used_again(self, outbox):
        """Of two relays that read one fact, the slower must not remove another one."""
        outbox.put(["a"])
        places = [one.place for one in outbox.read(10)]
        outbox.remove(places)
        outbox.put(["b"])
        outbox.remove(places)
        assert texts(outbox) == ["b"]

    def test_any_line_comes_back_as_it_was(self, outbox):
        outbox.put(ODD)
        assert texts(outbox) == ODD

    def test_many_facts_are_removed_at_once(self, outbox):
        outbox.put([str(number) for number in range(2500)])
        outbox.remove([one.place for one in outbox.read(2400)])
        assert texts(outbox) == [str(number) for number in range(2400, 2500)]

    def test_beyond_its_bound_the_oldest_are_dropped_and_counted(self, make_outbox):
        outbox = make_outbox(FEW)
        dropped = 0
        for start in range(0, 3 * FEW, FEW // 2):
            outbox.put([str(number) for number in range(start, start + FEW // 2)])
            dropped += outbox.trim().dropped
        kept = texts(outbox)
        assert FEW <= len(kept) <= FEW + 200, "Redis keeps up to a hundred more"
        assert dropped + len(kept) == 3 * FEW
        assert kept == [str(number) for number in range(dropped, 3 * FEW)]
        assert outbox.trim() == (pytest.approx(len(kept), abs=100), 0)

    def test_threads_put_facts_together(self, outbox):
        def put(name: str) -> None:
            for number in range(20):
                outbox.put([f"{name}-{number}"])

        threads = [threading.Thread(target=put, args=(str(name),)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = texts(outbox)
        assert len(found) == 100
        for name in range(5):
            mine = [text for text in found if text.startswith(f"{name}-")]
            assert mine == [f"{name}-{number}" for number in range(20)]

    # -- with the claims -----------------------------------------------------------------------

    @pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
    def test_a_claim_that_ends_keeps_its_facts_once(self, store, outbox, ending):
        key = claimed(store)
        assert store.settle(key, "mine", ending, ["a", "b"])
        assert store.settle(key, "mine", ending, ["a", "b"]), "a reply may be lost"
        assert texts(outbox) == ["a", "b"]

    def test_the_facts_of_a_claim_that_is_lost_are_not_kept(self, store, outbox):
        key = claimed(store)
        assert not store.settle(key, "another's", Complete(), ["a"])
        assert not store.settle(fresh(), "unknown", Complete(), ["a"])
        assert texts(outbox) == []

    def test_a_claim_that_goes_on_keeps_its_facts_in_order(self, store, outbox):
        key = claimed(store)
        assert store.owns(key, "mine", ["a", *ODD])
        assert store.owns(key, "mine")
        assert store.owns(key, "mine", ["b"])
        assert texts(outbox) == ["a", *ODD, "b"]

    @pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
    def test_a_claim_that_kept_facts_ends_as_any_other(self, store, outbox, ending):
        key = claimed(store)
        assert store.owns(key, "mine", ["a"])
        assert store.settle(key, "mine", ending)
        assert not store.owns(key, "mine", ["late"])
        assert store.settle(key, "mine", ending)
        assert texts(outbox) == ["a"]

    def test_who_does_not_hold_the_claim_keeps_no_fact(self, store, outbox):
        key = claimed(store)
        assert not store.owns(key, "another's", ["a"])
        assert not store.owns(fresh(), "mine", ["b"])
        store.claim([Claim(key=key, token="successor", owner="o")])
        assert not store.owns(key, "mine", ["c"]), "a dead owner was taken over"
        assert store.owns(key, "successor", ["d"])
        assert texts(outbox) == ["d"]

    def test_facts_are_kept_if_and_only_if_the_claim_was_held(self, store, outbox):
        """Also where it ends at the same moment."""
        keys = [claimed(store) for _ in range(40)]
        held: list[str] = []

        def ask() -> None:
            held.extend(key for key in keys if store.owns(key, "mine", [key]))

        def end() -> None:
            for key in reversed(keys):
                assert store.settle(key, "mine", Complete())

        threads = [threading.Thread(target=one) for one in (ask, end)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts(outbox) == held

    def test_an_ending_is_the_same_with_facts(self, store, make_claims, outbox):
        without = make_claims(outbox)
        for ending in ENDINGS:
            one, other = claimed(store), claimed(without)
            assert store.settle(one, "mine", ending, ["a"]) is without.settle(other, "mine", ending)
            position = Position(0, 5)
            asked = [
                made.claim([Claim(key=key, token="next", owner="o", position=position)])[0]
                for made, key in ((store, one), (without, other))
            ]
            assert asked[0] == asked[1]

    def test_a_wait_keeps_its_position_and_a_completion_its_result(self, store, outbox):
        key = claimed(store)
        assert store.settle(key, "mine", Complete(result='{"x":1}'), ODD)
        [answer] = store.claim([Claim(key=key, token="next", owner="o")])
        assert answer.result == '{"x":1}'
        assert texts(outbox) == ODD

    def test_ends_of_a_batch_keep_the_facts_of_those_that_were_ours(self, store, outbox):
        keys = [claimed(store) for _ in range(3)]
        ends = [
            ClaimEnd(keys[0], "mine", Complete(), ["0"]),
            ClaimEnd(keys[1], "another's", Complete(), ["1"]),
            ClaimEnd(keys[2], "mine", Complete(result="2"), ["2a", "2b"]),
        ]
        assert store.settle_all(ends) == store.settle_all(ends) == [True, False, True]
        assert sorted(texts(outbox)) == ["0", "2a", "2b"]


def claimed(store: IdempotencyStore) -> str:
    key = f"idempotency:app.handler:{fresh()}"
    store.claim([Claim(key=key, token="mine", owner="o")])
    return key


def texts(outbox: FactOutbox) -> list[str]:
    return [one.text for one in outbox.read(10_000)]
