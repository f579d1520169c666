"""What every log of finished steps must do. Each adapter subclasses this on the real server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.delivery.compensation import (
    LOG_LIFE,
    MOST_STEPS,
    FinishedStep,
    Logged,
    StepLog,
    StepLogKey,
)
from angzarr.errors import ConfigurationError
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    Claim,
    Claimed,
    Complete,
    Fail,
    IdempotencyStore,
    Position,
    Release,
    Wait,
)

from .idempotency import SHORT, fresh

RESERVE = FinishedStep("reserve", "shop.release", '{"n": 1}')
CHARGE = FinishedStep("charge", "shop.refund", '[null, "\\u0000\\ud83d"]')
SHIP = FinishedStep("ship ✈", "shop.recall")

MakeLog = Callable[[timedelta], StepLog]


class StepLogContract:
    """Subclasses give `store`, `make_log` (life → log of its claims) and `let_pass`."""

    @pytest.fixture
    def store(self) -> IdempotencyStore:
        raise NotImplementedError

    @pytest.fixture
    def make_log(self) -> MakeLog:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def log(self, make_log):
        return make_log(LOG_LIFE)

    @pytest.fixture
    def claim(self, store):
        """Claim a key as a new delivery of an owner without a lease; returns place and answer."""

        def claim(key: str | None = None, position: tuple[int, int] = (0, 0)):
            place = StepLogKey(key or f"idempotency:app.handler:{fresh()}", fresh(), position[0])
            asked = Claim(
                key=place.key, token=place.token, owner="dead", position=Position(*position)
            )
            (answer,) = store.claim([asked])
            return place, answer

        return claim

    @pytest.fixture
    def held(self, claim):
        return claim()[0]

    # -- one delivery -------------------------------------------------------------------------

    def test_steps_come_back_as_they_were_and_in_their_order(self, log, held):
        assert log.read(held) == Logged()
        for step in (RESERVE, CHARGE, SHIP):
            assert log.add(held, step)
        assert log.read(held) == Logged((RESERVE, CHARGE, SHIP))

    def test_a_step_of_the_same_name_is_replaced_and_is_the_last(self, log, held):
        again = RESERVE._replace(data='{"n": 2}')
        for step in (RESERVE, CHARGE, again):
            log.add(held, step)
        assert log.read(held).steps == (CHARGE, again)

    def test_undoing_returns_the_steps_and_is_remembered(self, log, held):
        log.add(held, RESERVE)
        log.add(held, CHARGE)
        assert list(log.mark_undoing(held, "because")) == [RESERVE, CHARGE]
        assert log.read(held) == Logged((RESERVE, CHARGE), "because")
        assert list(log.mark_undoing(held, "")) == [RESERVE, CHARGE]
        assert log.read(held).undoing == ""
        assert list(log.mark_undoing(held, None)) == [RESERVE, CHARGE]
        assert log.read(held).undoing is None

    def test_a_step_that_is_removed_is_gone_and_may_be_removed_again(self, log, held):
        log.add(held, RESERVE)
        log.add(held, CHARGE)
        log.mark_undoing(held, "")
        assert log.remove(held, "charge")
        assert log.remove(held, "charge")
        assert log.read(held) == Logged((RESERVE,), "")

    def test_of_an_empty_log_nothing_is_undone_or_remembered(self, log, held):
        assert list(log.mark_undoing(held, "")) == []
        assert log.remove(held, "charge")
        assert log.read(held) == Logged()

    def test_once_all_is_removed_undoing_is_over(self, log, held):
        log.add(held, RESERVE)
        log.mark_undoing(held, "because")
        log.remove(held, "reserve")
        assert log.read(held) == Logged()

    def test_a_new_step_says_that_the_handler_goes_forward_again(self, log, held):
        log.add(held, RESERVE)
        log.mark_undoing(held, "because")
        log.add(held, CHARGE)
        assert log.read(held) == Logged((RESERVE, CHARGE))

    def test_a_log_is_bounded_and_says_what_to_do(self, log, held):
        for n in range(MOST_STEPS):
            log.add(held, FinishedStep(f"step {n}", "undo"))
        with pytest.raises(ConfigurationError, match="register one step for many"):
            log.add(held, FinishedStep("one more", "undo"))
        assert log.add(held, FinishedStep("step 0", "undo", "2"))
        steps = log.read(held).steps
        assert (len(steps), steps[-1]) == (MOST_STEPS, FinishedStep("step 0", "undo", "2"))

    def test_logs_of_other_events_and_replays_are_not_touched(self, log, held, claim):
        log.add(held, RESERVE)
        other, _ = claim()
        log.add(other, CHARGE)
        log.remove(other, "reserve")
        assert log.read(held).steps == (RESERVE,)
        assert log.read(held._replace(replay=1)) == Logged()

    @pytest.mark.parametrize("odd", ["a}b", "{}", "{tag}x", "{open", "ö ✈ {"])
    def test_any_event_id_has_a_log(self, log, claim, odd):
        place, _ = claim(f"idempotency:h:{odd}{fresh()}")
        assert log.add(place, RESERVE)
        assert log.read(place).steps == (RESERVE,)

    # -- the fence ----------------------------------------------------------------------------

    def test_who_lost_the_claim_changes_nothing(self, log, held, claim):
        log.add(held, RESERVE)
        successor, _ = claim(held.key)
        log.add(successor, CHARGE)
        assert not log.add(held, SHIP)
        assert log.mark_undoing(held, "late") is None
        assert not log.remove(held, "charge")
        assert log.read(successor) == Logged((RESERVE, CHARGE))

    @pytest.mark.parametrize(
        "ending", [Complete(), Fail(), Release(), Wait(position=Position(0, 1))]
    )
    def test_a_claim_that_has_ended_is_lost(self, log, store, held, ending):
        store.settle(held.key, held.token, ending)
        assert not log.add(held, RESERVE)
        assert log.mark_undoing(held, "") is None
        assert log.read(held) == Logged()

    def test_who_never_claimed_writes_nothing(self, log):
        nobody = StepLogKey(f"idempotency:app.handler:{fresh()}", "t")
        assert not log.add(nobody, RESERVE)

    # -- what the claim says of it ----------------------------------------------------------------

    def test_a_claim_says_whether_steps_were_left(self, log, held, claim):
        assert claim(held.key)[1] == Claimed(starts=2)
        taken, _ = claim(held.key)
        log.add(taken, RESERVE)
        after, answer = claim(held.key)
        assert answer == Claimed(starts=4, steps=True)
        log.remove(after, "reserve")
        assert claim(held.key)[1] == Claimed(starts=5)

    def test_a_copy_is_told_as_well(self, log, store, held, claim):
        log.add(held, RESERVE)
        store.settle(held.key, held.token, Wait(position=Position(0, 1)))
        _, answer = claim(held.key, (0, 1))
        assert answer == Claimed(starts=1, steps=True)

    def test_a_claim_sent_twice_is_told_twice(self, log, store, held):
        log.add(held, RESERVE)
        again = Claim(key=held.key, token=held.token, owner="dead")
        assert store.claim([again]) == [Claimed(starts=1, steps=True)]

    def test_a_replay_begins_with_no_steps(self, log, store, held, claim):
        log.add(held, RESERVE)
        store.settle(held.key, held.token, Fail())
        replay, answer = claim(held.key, (1, 0))
        assert answer == Claimed(starts=1)
        log.add(replay, CHARGE)
        assert log.read(replay).steps == (CHARGE,)
        assert log.read(held).steps == (RESERVE,)

    # -- the end ------------------------------------------------------------------------------

    def test_a_completion_takes_the_log_along(self, log, store, held):
        log.add(held, RESERVE)
        assert store.settle(held.key, held.token, Complete(result="1", steps=held.replay))
        assert log.read(held) == Logged()
        assert store.settle(held.key, held.token, Complete(result="1", steps=held.replay))
        again = Claim(key=held.key, token=fresh(), owner="dead")
        assert store.claim([again]) == [AlreadyCompleted(result="1")]

    def test_a_completion_of_a_late_owner_takes_nothing(self, log, store, held, claim):
        log.add(held, RESERVE)
        claim(held.key)
        assert not store.settle(held.key, held.token, Complete(steps=held.replay))
        assert log.read(held).steps == (RESERVE,)

    def test_a_log_ends_by_itself_some_time_after_its_last_step(self, make_log, held, let_pass):
        log = make_log(SHORT)
        log.add(held, RESERVE)
        make_log(LOG_LIFE).add(held, CHARGE)
        let_pass(SHORT)
        assert log.read(held).steps == (RESERVE, CHARGE)
        log.add(held, SHIP)
        let_pass(SHORT)
        assert log.read(held) == Logged()
        assert list(log.mark_undoing(held, "")) == []
        log.add(held, SHIP)
        assert log.read(held) == Logged((SHIP,))

    # -- histories ----------------------------------------------------------------------------

    def test_any_history_leaves_what_a_list_would(self, log, claim):
        @settings(max_examples=25, deadline=None)
        @given(st.lists(st.tuples(_verbs, _names), max_size=12))
        def compare(history):
            place, _ = claim()
            steps, undoing = {}, None
            for number, (verb, name) in enumerate(history):
                if verb == "add":
                    step = FinishedStep(name, "undo", str(number))
                    assert log.add(place, step)
                    steps.pop(name, None)
                    steps[name], undoing = step, None
                elif verb == "remove":
                    assert log.remove(place, name)
                    steps.pop(name, None)
                    undoing = undoing if steps else None
                else:
                    cause = name if verb == "undo" else None
                    assert list(log.mark_undoing(place, cause)) == list(steps.values())
                    undoing = cause if steps else None
                assert log.read(place) == Logged(tuple(steps.values()), undoing)

        compare()


_verbs = st.sampled_from(["add", "add", "remove", "undo", "stop"])
_names = st.sampled_from(["a", "b:c", "n", "undoing", "s:a"])
