"""What every claim store must do. Each adapter's tests subclass this on the real server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from angzarr.resilience.idempotency import (
    FIRST,
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimEnd,
    Complete,
    Conflict,
    Ending,
    Fail,
    IdempotencyStore,
    InProgress,
    OwnerLeases,
    Position,
    Release,
    SupersededClaim,
    Wait,
)

LONG = timedelta(minutes=10)
#: Life and lease in tests that let it pass on a real server.
SHORT = timedelta(milliseconds=400)
CONTENDERS = 200

ENDINGS: list[Ending] = [
    Complete(result='{"ok": true}'),
    Fail(error='{"type": "ValueError"}'),
    Wait(position=Position(0, 1), delay=timedelta(seconds=5)),
    Release(),
]

MakeStore = Callable[[timedelta], IdempotencyStore]


def fresh() -> str:
    return uuid.uuid4().hex


class IdempotencyContract:
    """Subclasses give `make_store` (life → store), `leases` and `let_pass`."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        raise NotImplementedError

    @pytest.fixture
    def leases(self) -> OwnerLeases:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store):
        return make_store(LONG)

    @pytest.fixture
    def key(self):
        return f"idempotency:app.handler:{fresh()}"

    @pytest.fixture
    def living(self, leases):
        """An owner whose lease runs."""
        owner = f"living-{fresh()}"
        leases.renew(owner, LONG)
        return owner

    @pytest.fixture
    def ask(self, store, key):
        """Claim `key` as a new delivery, of an owner without a lease unless one is named."""

        def ask(
            position: tuple[int, int] = FIRST,
            *,
            token: str | None = None,
            owner: str = "dead",
            fingerprint: str = "",
            counted: bool = True,
            anew: bool = False,
        ) -> ClaimAnswer:
            claim = Claim(
                key=key,
                token=token or fresh(),
                owner=owner,
                position=Position(*position),
                fingerprint=fingerprint,
                counted=counted,
                anew=anew,
            )
            return store.claim([claim])[0]

        return ask

    # -- one delivery -------------------------------------------------------------------------

    def test_first_claim_is_granted(self, ask):
        assert ask() == Claimed(starts=1)

    def test_claim_sent_twice_gets_the_same_answer(self, store, ask, key):
        assert ask(token="a") == ask(token="a") == Claimed(starts=1)
        ask(token="b")
        assert ask(token="b") == Claimed(starts=2)
        assert store.owns(key, "b")

    def test_only_the_claimant_owns_the_key(self, store, ask, key):
        assert not store.owns(key, "a")
        ask(token="a")
        assert store.owns(key, "a")
        assert not store.owns(key, "b")

    @pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
    def test_settle_sent_twice_succeeds_twice(self, store, ask, key, ending):
        ask(token="a")
        assert store.settle(key, "a", ending)
        assert store.settle(key, "a", ending)
        assert not store.owns(key, "a")

    @pytest.mark.parametrize("first", ENDINGS, ids=lambda ending: type(ending).__name__)
    @pytest.mark.parametrize("second", ENDINGS, ids=lambda ending: type(ending).__name__)
    def test_another_ending_after_the_first_changes_nothing(self, store, ask, key, first, second):
        ask(token="a")
        store.settle(key, "a", first)
        assert store.settle(key, "a", second) is (type(first) is type(second))
        unchanged = {
            Complete: AlreadyCompleted(result='{"ok": true}'),
            Fail: AlreadyFailed(error='{"type": "ValueError"}'),
            Wait: SupersededClaim(),
            Release: Claimed(starts=1),
        }
        assert ask() == unchanged[type(first)]

    def test_settle_of_an_unknown_key_leaves_no_record(self, store, ask, key):
        assert not store.settle(key, "a", Complete())
        assert ask() == Claimed(starts=1)

    # -- completed and failed -----------------------------------------------------------------

    @pytest.mark.parametrize("result", [None, "", "null", '"ünïcode \\u0000"', "x" * 200_000])
    def test_completed_gives_its_result_to_duplicates(self, store, ask, key, result):
        ask(token="a")
        store.settle(key, "a", Complete(result=result))
        assert ask() == AlreadyCompleted(result=result)

    @pytest.mark.parametrize("position", [(0, 0), (0, 7), (3, 0)])
    def test_nothing_passes_completed(self, store, ask, key, position):
        ask((0, 1), token="a")
        store.settle(key, "a", Complete(result="1"))
        assert ask(position) == AlreadyCompleted(result="1")
        assert ask(position, token="a") == AlreadyCompleted(result="1")

    def test_a_claim_anew_takes_what_was_completed(self, store, ask, key, living):
        ask((0, 1), token="a", fingerprint="x")
        store.settle(key, "a", Complete(result="1"))
        assert ask((0, 1), anew=True, fingerprint="y") == Conflict()
        assert ask(token="b", owner=living, anew=True) == Claimed(starts=1), "an earlier hop"
        assert ask(token="b", owner=living, anew=True) == Claimed(starts=1), "sent twice"
        assert ask(anew=True) == InProgress()
        store.settle(key, "b", Complete())
        assert ask() == AlreadyCompleted(result=None), "the earlier result is gone"

    def test_a_claim_anew_does_not_pass_what_failed_or_has_gone_on(self, store, ask, key):
        ask(token="a")
        store.settle(key, "a", Wait(position=Position(0, 1), delay=LONG))
        assert ask(anew=True) == SupersededClaim()
        ask((0, 1), token="b")
        store.settle(key, "b", Fail(error="{}"))
        assert ask((0, 1), anew=True) == AlreadyFailed(error="{}")

    @pytest.mark.parametrize("position", [(0, 0), (1, 0), (1, 2), (1, 9)])
    def test_failed_refuses_its_own_replay_with_the_error(self, store, ask, key, position):
        ask((1, 2), token="a")
        store.settle(key, "a", Fail(error='{"type": "ValueError"}'))
        assert ask(position) == AlreadyFailed(error='{"type": "ValueError"}')

    def test_higher_replay_passes_failed(self, store, ask, key):
        ask((0, 5), token="a")
        store.settle(key, "a", Fail(error="{}"))
        assert ask((1, 0), token="b") == Claimed(starts=1)
        assert store.owns(key, "b")
        assert ask((0, 9)) == SupersededClaim()

    def test_error_of_a_failure_is_gone_after_its_replay(self, store, ask, key):
        ask(token="a")
        store.settle(key, "a", Fail(error='{"type": "ValueError"}'))
        ask((1, 0), token="b")
        store.settle(key, "b", Complete())
        assert ask((1, 0)) == AlreadyCompleted(result=None)

    # -- in progress, leases, takeover ----------------------------------------------------------

    @pytest.mark.parametrize("position", [(0, 0), (0, 1), (1, 0)])
    def test_living_owner_keeps_its_claim(self, store, ask, key, living, position):
        ask(token="a", owner=living)
        assert ask(position) == InProgress()
        assert ask(position, owner=living) == InProgress()
        assert store.owns(key, "a")

    def test_dead_owner_is_taken_over_and_fenced(self, store, ask, key, living):
        ask(token="late")
        assert ask(token="new", owner=living) == Claimed(starts=2)
        assert not store.owns(key, "late")
        for ending in ENDINGS:
            assert not store.settle(key, "late", ending)
        assert store.owns(key, "new")
        assert ask(token="late") == InProgress()
        assert store.settle(key, "new", Complete(result="1"))
        assert not store.settle(key, "late", Complete(result="2"))
        assert ask() == AlreadyCompleted(result="1")

    def test_every_takeover_counts_a_start(self, ask):
        assert [ask().starts for _ in range(4)] == [1, 2, 3, 4]

    def test_lease_that_runs_out_lets_the_claim_go(self, leases, ask, let_pass):
        owner = fresh()
        leases.renew(owner, SHORT)
        ask(owner=owner)
        assert ask() == InProgress()
        let_pass(SHORT)
        assert ask() == Claimed(starts=2)

    def test_renewed_lease_lasts_longer(self, leases, ask, let_pass):
        owner = fresh()
        leases.renew(owner, SHORT)
        ask(owner=owner)
        leases.renew(owner, LONG)
        let_pass(SHORT)
        assert ask() == InProgress()

    def test_lease_may_be_shortened(self, leases, ask, living, let_pass):
        ask(owner=living)
        leases.renew(living, SHORT)
        let_pass(SHORT)
        assert ask() == Claimed(starts=2)

    def test_ended_lease_lets_the_claims_go_at_once(self, leases, ask, living):
        ask(owner=living)
        leases.end(living)
        leases.end(living)
        assert ask() == Claimed(starts=2)

    # -- positions -----------------------------------------------------------------------------

    def test_delivery_below_a_pending_position_is_superseded(self, ask, living):
        ask((1, 2), owner=living)
        assert [ask(p) for p in [(0, 9), (1, 0), (1, 1)]] == [SupersededClaim()] * 3
        assert ask((1, 2)) == InProgress()

    def test_delivery_below_a_dead_owners_position_is_superseded(self, ask):
        ask((0, 2))
        assert ask((0, 1)) == SupersededClaim()
        assert ask((0, 2)) == Claimed(starts=2)

    def test_takeover_moves_the_position(self, ask):
        ask((0, 1))
        assert ask((0, 3)) == Claimed(starts=2)
        assert ask((0, 2)) == SupersededClaim()

    def test_waiting_is_claimed_by_its_copy_or_a_later_one(self, store, ask, key):
        ask((0, 0), token="a")
        store.settle(key, "a", Wait(position=Position(0, 1)))
        assert ask((0, 0)) == SupersededClaim()
        assert ask((0, 1), token="b") == Claimed(starts=1)
        store.settle(key, "b", Wait(position=Position(0, 2)))
        assert ask((0, 1)) == SupersededClaim()
        assert ask((1, 0)) == Claimed(starts=1)

    def test_waiting_forgets_the_starts(self, store, ask, key):
        assert [ask(token=token).starts for token in "abc"] == [1, 2, 3]
        store.settle(key, "c", Wait(position=Position(0, 1)))
        assert ask((0, 1)) == Claimed(starts=1)

    def test_a_wait_where_it_is_lets_the_same_copy_begin_without_a_start(self, store, ask, key):
        assert [ask(token=token).starts for token in "abc"] == [1, 2, 3]
        store.settle(key, "c", Wait(position=Position(0, 0)))
        assert ask(token="d") == Claimed(starts=1)

    def test_wait_never_moves_the_position_back(self, store, ask, key):
        ask((1, 5), token="a")
        store.settle(key, "a", Wait(position=Position(0, 9)))
        assert ask((1, 4)) == SupersededClaim()
        assert ask((1, 5)) == Claimed(starts=1)

    def test_released_is_claimed_at_its_position_without_a_start(self, store, ask, key):
        ask((0, 3), token="a")
        assert store.settle(key, "a", Release())
        assert ask((0, 2)) == SupersededClaim()
        assert ask((0, 3)) == Claimed(starts=1)

    def test_release_undoes_its_own_start_only(self, store, ask, key):
        ask(token="killed")
        assert ask(token="given back") == Claimed(starts=2)
        store.settle(key, "given back", Release())
        assert ask() == Claimed(starts=2)

    def test_a_start_that_killed_its_process_stays_counted(self, store, ask, key, living):
        ask(token="a", owner=living)
        assert store.settle(key, "a", Release(counted=True))
        assert store.settle(key, "a", Release(counted=True))
        assert ask(token="b", owner=living) == Claimed(starts=2)

    def test_a_claim_that_is_not_counted_adds_no_start(self, ask):
        assert ask(counted=False) == Claimed(starts=0)
        assert ask(counted=False) == Claimed(starts=0)
        assert ask() == Claimed(starts=1)

    def test_a_start_that_was_not_counted_counts_when_it_killed_its_process(self, store, ask, key):
        ask(token="a", counted=False)
        assert store.settle(key, "a", Release(counted=True, was_counted=False))
        assert ask(token="b") == Claimed(starts=2)

    def test_giving_back_what_was_not_counted_undoes_no_start(self, store, ask, key):
        ask(token="killed")
        ask(token="b", counted=False)
        assert store.settle(key, "b", Release(was_counted=False))
        assert ask() == Claimed(starts=2)

    def test_what_a_run_said_last_is_told_until_one_is_settled(self, store, ask, key):
        ask(token="a")
        dying = Release(counted=True, last_words='["SystemExit: 3", "…"]')
        assert store.settle(key, "a", dying)
        assert store.settle(key, "a", Release(counted=True)), "its parent says so once more"
        told = Claimed(starts=2, last_words='["SystemExit: 3", "…"]')
        assert ask(token="b") == ask(token="b") == told, "also if its answer was lost"
        assert store.settle(key, "b", Release())
        assert ask(token="c") == told
        assert store.settle(key, "c", Complete())
        assert ask() == AlreadyCompleted(result=None), "last words are no result"

    def test_what_a_run_said_before_a_wait_is_forgotten(self, store, ask, key):
        ask(token="a")
        store.settle(key, "a", Release(counted=True, last_words="[]"))
        ask(token="b")
        store.settle(key, "b", Wait(position=Position(0, 1)))
        assert ask((0, 1)) == Claimed(starts=1)

    def test_released_passes_on_whether_the_owner_lives(self, store, ask, key, living):
        ask(token="a", owner=living)
        store.settle(key, "a", Release())
        assert ask(owner=living) == Claimed(starts=1)

    # -- fingerprints ----------------------------------------------------------------------------

    def test_another_body_in_the_same_replay_conflicts(self, store, ask, key, living):
        ask((0, 0), token="a", owner=living, fingerprint="x")
        assert ask((0, 0), fingerprint="y") == Conflict()
        assert ask((0, 1), fingerprint="y") == Conflict()
        assert ask((0, 0), fingerprint="x") == InProgress()
        store.settle(key, "a", Wait(position=Position(0, 1)))
        assert ask((0, 1), fingerprint="y") == Conflict()
        assert ask((0, 1), token="b", fingerprint="x") == Claimed(starts=1)
        store.settle(key, "b", Complete(result="1"))
        assert ask((0, 1), fingerprint="y") == Conflict()
        assert ask((0, 1), fingerprint="x") == AlreadyCompleted(result="1")

    def test_another_body_does_not_take_over_a_dead_owner(self, ask):
        ask(fingerprint="x")
        assert ask(fingerprint="y") == Conflict()

    def test_empty_fingerprint_is_not_compared_and_does_not_erase(self, ask):
        ask(fingerprint="x")
        assert ask() == Claimed(starts=2)
        assert ask(fingerprint="y") == Conflict()
        assert ask(fingerprint="x") == Claimed(starts=3)

    def test_fingerprints_that_two_keys_made_tell_nothing_of_each_other(self, ask):
        ask(fingerprint="k1:x")
        assert ask(fingerprint="k2:y") == Claimed(starts=2)
        assert ask(fingerprint="k2:z") == Conflict()
        assert ask(fingerprint="y") == Claimed(starts=3), "nor one that none made"
        assert ask(fingerprint="k2:y") == Claimed(starts=4)
        assert ask(fingerprint="k2:y") == Claimed(starts=5)

    def test_fingerprint_that_comes_later_is_kept(self, ask):
        ask()
        ask(fingerprint="x")
        assert ask(fingerprint="y") == Conflict()

    def test_edited_replay_records_its_own_body(self, store, ask, key):
        ask((0, 0), token="a", fingerprint="x")
        store.settle(key, "a", Fail())
        assert ask((1, 0), token="b", fingerprint="y") == Claimed(starts=1)
        assert ask((1, 0), fingerprint="x") == Conflict()
        store.settle(key, "b", Complete(result="1"))
        assert ask((1, 0), fingerprint="x") == Conflict()
        assert ask((0, 0), fingerprint="x") == AlreadyCompleted(result="1")

    # -- batches and keys --------------------------------------------------------------------------

    def test_no_claims_no_answers(self, store):
        assert store.claim([]) == []

    def test_no_ends_no_answers(self, store):
        assert store.settle_all([]) == []

    def test_ends_of_a_batch_are_told_one_by_one(self, store, living):
        ends = [(f"{fresh()}-{n}", f"token-{n}", ending) for n, ending in enumerate(ENDINGS)]
        store.claim([Claim(key=key, token=token, owner=living) for key, token, _ in ends])
        lost = ClaimEnd(ends[0][0], "another's", Complete())
        unknown = ClaimEnd(fresh(), "token", Complete())
        batch = [lost, *(ClaimEnd(*end) for end in ends), unknown]
        told = [False, *(True for _ in ends), False]
        assert store.settle_all(batch) == told
        assert store.settle_all(batch) == told, "a reply may be lost, and all is sent again"
        assert not any(store.owns(key, token) for key, token, _ in ends)

    def test_a_batch_of_completions_is_what_duplicates_are_told(self, store, living):
        keys = [fresh() for _ in range(3)]
        store.claim([Claim(key=key, token=key, owner=living) for key in keys])
        assert all(store.settle_all([ClaimEnd(k, k, Complete(result=f'"{k}"')) for k in keys]))
        again = [Claim(key=key, token=fresh(), owner=living) for key in keys]
        assert store.claim(again) == [AlreadyCompleted(result=f'"{key}"') for key in keys]

    def test_batches_that_end_in_opposite_orders_do_not_block_each_other(self, store, living):
        keys = [fresh() for _ in range(8)]
        store.claim([Claim(key=key, token=key, owner=living) for key in keys])
        orders = [keys, keys[::-1]] * 4
        with ThreadPoolExecutor(len(orders)) as pool:
            told = pool.map(
                lambda order: store.settle_all([ClaimEnd(k, k, Complete()) for k in order]), orders
            )
            assert all(all(one) for one in told)

    def test_batch_is_answered_in_order(self, store, living):
        held, done, dead, free = (f"{name}-{fresh()}" for name in ("z", "y", "x", "a"))
        store.claim([Claim(key=held, token="1", owner=living)])
        store.claim([Claim(key=done, token="2", owner=living)])
        store.settle(done, "2", Complete(result="2"))
        store.claim([Claim(key=dead, token="3", owner="dead")])
        keys = [held, done, dead, free, free, dead]
        answers = store.claim(
            [Claim(key=key, token=f"t{i}", owner=living) for i, key in enumerate(keys)]
        )
        assert answers == [
            InProgress(),
            AlreadyCompleted(result="2"),
            Claimed(starts=2),
            Claimed(starts=1),
            InProgress(),
            InProgress(),
        ]
        assert store.owns(free, "t3")
        assert store.owns(dead, "t2")

    @pytest.mark.parametrize(
        "odd", ["ünïcode €", "'; DROP TABLE x --", "{tag}", "*?[a]", "back\\slash %s :x", "x" * 600]
    )
    def test_any_text_is_a_key(self, store, odd):
        key = f"{odd}{fresh()}"
        assert store.claim([Claim(key=key, token=odd, owner=odd)]) == [Claimed(starts=1)]
        assert store.owns(key, odd)
        assert store.settle(key, odd, Complete(result=odd))

    # -- lives -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("ending", [Complete(life=SHORT), Fail(life=SHORT)])
    def test_settled_record_ends_with_its_life(self, store, ask, key, let_pass, ending):
        ask((0, 4), token="a", fingerprint="x")
        store.settle(key, "a", ending)
        assert not isinstance(ask(), Claimed)
        let_pass(SHORT)
        assert ask(fingerprint="y") == Claimed(starts=1)

    def test_waiting_lives_through_its_delay(self, store, ask, key, let_pass):
        ask(token="a")
        store.settle(key, "a", Wait(position=Position(0, 1), delay=LONG, life=SHORT))
        let_pass(SHORT)
        assert ask() == SupersededClaim()

    def test_pending_record_is_kept_while_deliveries_ask_for_it(
        self, make_store, key, living, let_pass
    ):
        store = make_store(2 * SHORT)
        store.claim([Claim(key=key, token="a", owner=living)])
        for _ in range(3):
            let_pass(SHORT)
            assert store.claim([Claim(key=key, token=fresh(), owner="b")]) == [InProgress()]
        assert store.owns(key, "a")

    def test_pending_record_ends_with_the_stores_life(self, make_store, key, living, let_pass):
        store = make_store(SHORT)
        store.claim([Claim(key=key, token="a", owner=living, position=Position(0, 3))])
        let_pass(SHORT)
        assert not store.owns(key, "a")
        assert not store.settle(key, "a", Complete())
        assert store.claim([Claim(key=key, token="b", owner=living)]) == [Claimed(starts=1)]

    # -- many at once ------------------------------------------------------------------------------

    def test_two_hundred_concurrent_claims_have_one_winner(self, store, key, living):
        answers = claim_at_once(store, key, living, CONTENDERS)
        assert answers.count(Claimed(starts=1)) == 1
        assert answers.count(InProgress()) == CONTENDERS - 1

    def test_two_hundred_concurrent_takeovers_have_one_winner(self, store, key, ask, living):
        ask()
        answers = claim_at_once(store, key, living, CONTENDERS)
        assert answers.count(Claimed(starts=2)) == 1
        assert answers.count(InProgress()) == CONTENDERS - 1

    def test_batches_in_opposite_orders_do_not_block_each_other(self, store):
        keys = [fresh() for _ in range(10)]

        def batch(number: int) -> dict[str, ClaimAnswer]:
            order = keys if number % 2 else keys[::-1]
            claims = [Claim(key=key, token=f"{number}", owner="dead") for key in order]
            return dict(zip(order, store.claim(claims), strict=True))

        with ThreadPoolExecutor(8) as pool:
            batches = list(pool.map(batch, range(8)))
        for key in keys:
            # Who loses a race for a dead owner's claim may hear that it is in progress again.
            granted = [b[key].starts for b in batches if b[key] != InProgress()]
            assert sorted(granted) == list(range(1, len(granted) + 1))
            assert granted


def claim_at_once(
    store: IdempotencyStore, key: str, owner: str, contenders: int
) -> list[ClaimAnswer]:
    """Let that many threads claim *key* at the same moment."""
    gate = threading.Barrier(contenders)

    def contend(number: int) -> ClaimAnswer:
        claim = Claim(key=key, token=f"{number}-{fresh()}", owner=owner)
        gate.wait(timeout=60)
        return store.claim([claim])[0]

    with ThreadPoolExecutor(contenders) as pool:
        return list(pool.map(contend, range(contenders)))
