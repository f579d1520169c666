"""What every register of bodies must do, and every claim store that releases them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.contracts.fact_outbox import claimed, texts
from tests.contracts.idempotency import fresh

from angzarr.payloads.collector import PayloadCount, PayloadState
from angzarr.payloads.holders import PayloadHold, address_of, holding
from angzarr.resilience.idempotency import (
    Claim,
    ClaimEnd,
    Complete,
    Fail,
    Position,
    Release,
    Wait,
)

HELD, FREE, CONDEMNED = PayloadState.HELD, PayloadState.FREE, PayloadState.CONDEMNED
DAY = timedelta(days=1)
NOW = timedelta(0)
#: Holders and addresses may be any printable text.
ODD = "idempotency:app.%3A:'\"\\ %s é€\U0001f600#1#ab"


class PayloadHoldersContract:
    """Subclasses give `holders`, `store` (claims beside them) and `age`, which lets time pass."""

    @pytest.fixture
    def holders(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def age(self) -> Callable[[timedelta], None]:
        """Let so much time pass for all that is registered."""
        raise NotImplementedError

    # -- holding -------------------------------------------------------------------------------

    def test_one_content_has_one_uri_for_all_who_hold_it(self, holders):
        first = hold(holders, "a", "me")
        assert first.startswith("s3://b/aa/a-")
        assert hold(holders, "a", "you") == hold(holders, "a", "me") == first
        assert hold(holders, "other", "me") != first
        assert holders.count()[HELD] == (2, 20)

    def test_a_call_that_is_sent_twice_registers_once(self, holders):
        asked = ("s3://b/aa/a", 10, "me")
        uri = holders.hold(*asked, fresh="s3://b/aa/a-0123456789abcdef")
        assert holders.hold(*asked, fresh="s3://b/aa/a-0123456789abcdef") == uri
        assert holders.join([PayloadHold(uri, "x"), PayloadHold(uri, "x")]) == [True, True]
        holders.release([PayloadHold(uri, "me"), PayloadHold(uri, "x"), PayloadHold(uri, "x")])
        holders.release([PayloadHold(uri, "me")])
        assert holders.count() == counts(free=(1, 10))

    def test_a_body_is_free_once_its_last_holder_let_go(self, holders):
        uri = hold(holders, "a", "me")
        assert holders.join([PayloadHold(uri, "letter:1")]) == [True]
        holders.release([PayloadHold(uri, "me")])
        [found] = holders.find(HELD, NOW, limit=10)
        assert (found.uri, found.size, found.holders, found.holder) == (uri, 10, 1, "letter:1")
        holders.release([PayloadHold(uri, "letter:1")])
        assert holders.find(HELD, NOW, limit=10) == []
        [found] = holders.find(FREE, NOW, limit=10)
        assert (found.uri, found.size, found.holders, found.holder) == (uri, 10, 0, "")

    def test_who_does_not_hold_a_body_cannot_let_it_go(self, holders):
        uri = hold(holders, "a", "me")
        holders.release(
            [
                PayloadHold(uri, "you"),
                PayloadHold(uri, "m"),
                PayloadHold(uri, ""),
                PayloadHold(uri + "0", "me"),
                PayloadHold("s3://b/aa/a", "me"),
            ]
        )
        holders.release([])
        assert holders.count() == counts(held=(1, 10))

    def test_a_body_that_is_not_registered_cannot_be_joined(self, holders):
        uri = hold(holders, "a", "me")
        asked = ["s3://b/aa/a", uri, "file:///etc/passwd", "s3://b/aa/a-0000000000000000"]
        joined = holders.join([PayloadHold(one, "you") for one in asked])
        assert joined == [False, True, False, False]
        assert holders.join([]) == []
        assert holders.count()[HELD].bodies == 1

    def test_a_free_body_is_held_again_under_the_same_uri(self, holders):
        uri = hold(holders, "a", "me")
        holders.release([PayloadHold(uri, "me")])
        assert hold(holders, "a", "you") == uri
        holders.release([PayloadHold(uri, "you")])
        assert holders.join([PayloadHold(uri, "letter:1")]) == [True]
        assert holders.count() == counts(held=(1, 10))

    def test_all_who_hold_a_body_are_told_or_as_many_as_are_asked_for(self, holders):
        uri, other = hold(holders, "a", "me"), hold(holders, "b", "else")
        holders.join([PayloadHold(uri, ODD), PayloadHold(uri, "letter:1")])
        assert holders.holders_of(uri) == {"me", ODD, "letter:1"}
        assert len(holders.holders_of(uri, limit=2)) == 2
        assert holders.holders_of(other) == {"else"}
        assert holders.holders_of(uri + "0") == holders.holders_of("") == set()
        holders.condemn([uri], HELD, NOW)
        assert holders.holders_of(uri) == set()

    def test_any_holder_and_address_is_taken(self, holders):
        uri = holding(holders, ODD)(f"s3://b/{ODD}/aa/a", 3)
        [found] = holders.find(HELD, NOW, limit=10)
        assert (found.uri, found.holder) == (uri, ODD)
        holders.release([PayloadHold(uri, ODD)])
        assert holders.condemn([uri], FREE, NOW) == [uri]

    # -- collecting ----------------------------------------------------------------------------

    def test_a_body_is_condemned_once_it_was_free_for_so_long_and_not_before(self, holders, age):
        uri = hold(holders, "a", "me")
        age(2 * DAY)
        holders.release([PayloadHold(uri, "me")])
        assert holders.find(FREE, DAY, limit=10) == []
        assert holders.condemn([uri], FREE, DAY) == []
        age(DAY)
        [found] = holders.find(FREE, DAY, limit=10)
        assert found.uri == uri
        assert DAY <= found.since < DAY + timedelta(hours=1)
        assert holders.condemn([uri], FREE, DAY) == [uri]
        assert holders.count() == counts(condemned=(1, 10))

    def test_a_hold_that_comes_before_its_sentence_saves_a_body(self, holders, age):
        uri = hold(holders, "a", "me")
        holders.release([PayloadHold(uri, "me")])
        age(2 * DAY)
        assert [one.uri for one in holders.find(FREE, DAY, limit=10)] == [uri]
        hold(holders, "a", "you")
        assert holders.condemn([uri], FREE, DAY) == []
        holders.release([PayloadHold(uri, "you")])
        assert holders.condemn([uri], FREE, DAY) == [], "its grace begins anew"
        assert holders.count() == counts(free=(1, 10))

    def test_the_name_of_a_condemned_body_is_never_given_again(self, holders):
        uri = hold(holders, "a", "me")
        holders.release([PayloadHold(uri, "me")])
        assert holders.condemn([uri], FREE, NOW) == [uri]
        assert holders.join([PayloadHold(uri, "letter:1")]) == [False]
        second = hold(holders, "a", "you")
        assert second != uri
        assert hold(holders, "a", "me") == second
        holders.forget([uri])
        assert hold(holders, "a", "me") == second
        assert holders.join([PayloadHold(uri, "letter:1")]) == [False]
        holders.release([PayloadHold(uri, "me")])
        assert holders.count() == counts(held=(1, 10))

    def test_a_condemned_body_stays_so_until_it_is_forgotten(self, holders):
        uri = hold(holders, "a", "me")
        holders.release([PayloadHold(uri, "me")])
        holders.condemn([uri], FREE, NOW)
        holders.release([PayloadHold(uri, "me")])
        assert [one.uri for one in holders.find(CONDEMNED, NOW, limit=10)] == [uri]
        assert holders.condemn([uri], CONDEMNED, NOW) == [uri]
        assert holders.condemn([uri], FREE, NOW) == []
        assert holders.known([uri, "s3://b/x"]) == {uri}
        holders.forget([uri])
        holders.forget([uri])
        assert holders.count() == counts()
        assert holders.known([uri]) == holders.known([]) == set()

    def test_nothing_but_a_condemned_body_can_be_forgotten(self, holders):
        held, free = hold(holders, "a", "me"), hold(holders, "b", "me")
        holders.release([PayloadHold(free, "me")])
        holders.forget([held, free, "s3://b/unknown"])
        holders.forget([])
        assert holders.known([held, free]) == {held, free}
        assert holders.count() == counts(held=(1, 10), free=(1, 10))

    def test_what_was_held_too_long_may_be_condemned_and_its_holds_end(self, holders, age):
        uri = hold(holders, "a", "me")
        age(DAY)
        hold(holders, "a", "you")
        assert holders.condemn([uri], HELD, DAY) == [], "its latest hold counts"
        age(DAY)
        assert holders.condemn([uri], HELD, DAY) == [uri]
        [found] = holders.find(CONDEMNED, NOW, limit=10)
        assert found.holders == 0
        holders.release([PayloadHold(uri, "me")])
        assert holders.count() == counts(condemned=(1, 10))

    def test_bodies_are_found_in_pages_the_oldest_first(self, holders, age):
        uris = []
        for number in range(5):
            uris.append(hold(holders, str(number), "me"))
            age(DAY)
        found = [holders.find(HELD, NOW, limit=2, skip=skip) for skip in (0, 2, 4, 6)]
        assert [[one.uri for one in page] for page in found] == [
            uris[:2], uris[2:4], uris[4:], []
        ]  # fmt: skip
        assert [one.uri for one in holders.find(HELD, 4 * DAY, limit=9)] == uris[:2]
        assert holders.condemn([], HELD, NOW) == []

    def test_threads_share_bodies_and_lose_no_hold(self, holders):
        def use(name: str) -> None:
            for number in range(8):
                body = str(number % 2)
                uri = hold(holders, body, f"{name}-{number}")
                assert holders.join([PayloadHold(uri, f"letter:{name}-{number}")]) == [True]
                holders.release([PayloadHold(uri, f"{name}-{number}")])
                holders.condemn([uri], FREE, NOW)

        threads = [threading.Thread(target=use, args=(str(name),)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = holders.find(HELD, NOW, limit=100)
        assert sum(one.holders for one in found) == 32
        # Two who register one content first, at once, may each have a URI: both are looked after.
        assert {address_of(one.uri) for one in found} == {"s3://b/aa/0", "s3://b/aa/1"}

    # -- with the claims -----------------------------------------------------------------------

    @pytest.mark.parametrize("facts", [(), ("a", "b")], ids=["", "facts"])
    @pytest.mark.parametrize(
        "make",
        [
            lambda one: Complete(releases=one),
            lambda one: Complete(result='"x"', releases=one),
            lambda one: Fail(error='{"e":1}', releases=one),
            lambda one: Wait(position=Position(0, 1), releases=one),
        ],
        ids=["done", "result", "failed", "waiting"],
    )
    def test_a_claim_that_ends_releases_its_body_once(self, store, holders, make, facts):
        uri, key = hold(holders, "a", "me"), claimed(store)
        ending = make(PayloadHold(uri, "me"))
        assert store.settle(key, "mine", ending, facts)
        assert holders.count() == counts(free=(1, 10))
        hold(holders, "a", "me")
        assert store.settle(key, "mine", ending, facts), "a reply may be lost"
        [answer] = store.claim([Claim(key=key, token="next", owner="o")])
        assert type(answer).__name__ in {"AlreadyCompleted", "AlreadyFailed", "SupersededClaim"}
        if isinstance(ending, Complete):
            assert answer.result == ending.result
        if isinstance(ending, Fail):
            assert answer.error == ending.error
        assert texts(store.outbox) == list(facts)

    def test_a_claim_that_is_lost_releases_nothing(self, store, holders):
        uri, key = hold(holders, "a", "me"), claimed(store)
        ending = Complete(releases=PayloadHold(uri, "me"))
        assert not store.settle(key, "another's", ending)
        assert not store.settle(fresh(), "unknown", ending)
        assert store.settle(key, "mine", Release())
        assert holders.count() == counts(held=(1, 10))

    def test_an_ending_releases_no_body_that_its_message_does_not_hold(self, store, holders):
        uri = hold(holders, "a", "me")
        for one in (PayloadHold(uri, "you"), PayloadHold("file:///etc/passwd", "me")):
            assert store.settle(claimed(store), "mine", Complete(releases=one))
        assert holders.count() == counts(held=(1, 10))

    def test_ends_of_a_batch_release_the_bodies_of_those_that_were_ours(self, store, holders):
        uris = [hold(holders, name, "me") for name in "aabb"]
        keys = [claimed(store) for _ in uris]
        ends = [
            ClaimEnd(keys[0], "mine", Complete(releases=PayloadHold(uris[0], "me")), ["0"]),
            ClaimEnd(keys[1], "mine", Complete(result="1")),
            ClaimEnd(keys[2], "another's", Complete(releases=PayloadHold(uris[2], "me"))),
            ClaimEnd(keys[3], "mine", Complete(result="3"), ["3"]),
        ]
        assert store.settle_all(ends) == [True, True, False, True]
        assert holders.count() == counts(held=(1, 10), free=(1, 10))
        assert sorted(texts(store.outbox)) == ["0", "3"]

    def test_batches_that_share_bodies_do_not_wait_for_each_other(self, store, holders):
        """Two transactions that release the same bodies in turn would be a deadlock."""
        uris = [hold(holders, name, f"m{number}") for name in "ab" for number in range(20)]
        pairs = list(zip(uris[:20], uris[20:], strict=True))
        orders = [
            [one for pair in pairs for one in pair],
            [one for pair in pairs for one in pair[::-1]],
        ]
        failed: list[BaseException] = []

        def end(start: int, order: list[str]) -> None:
            try:
                for number in range(start, 20, 2):
                    holder = f"m{number}"
                    store.settle_all(
                        [
                            ClaimEnd(
                                claimed(store), "mine", Complete(releases=PayloadHold(u, holder))
                            )
                            for u in order[:2]
                        ]
                    )
            except BaseException as error:
                failed.append(error)

        threads = [
            threading.Thread(target=end, args=(start, order)) for start, order in enumerate(orders)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert holders.count() == counts(free=(2, 20))


def hold(holders: Any, body: str, holder: str) -> str:
    return holding(holders, holder)(f"s3://b/aa/{body}", 10)


def counts(
    held: tuple[int, int] = (0, 0),
    free: tuple[int, int] = (0, 0),
    condemned: tuple[int, int] = (0, 0),
) -> dict[PayloadState, PayloadCount]:
    told = {HELD: held, FREE: free, CONDEMNED: condemned}
    return {state: PayloadCount(*one) for state, one in told.items()}
