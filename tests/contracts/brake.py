"""What every brake does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.analysis.ledger import emergency_stop as brakes
from angzarr.analysis.ledger.emergency_stop import Brake, BrakeMoved, Scope


class BrakeContract:
    """The suite; `brake` is new and reads `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def brake(self, clock: HandClock) -> Brake:
        raise NotImplementedError

    def test_a_new_brake_holds_nothing(self, brake, clock):
        assert brake.state().holds(clock.now()) is Scope.NOTHING
        assert brake.brake_history(10) == ()

    def test_a_pulled_brake_holds_until_it_is_released_and_says_who_and_why(self, brake, clock):
        brake.put(Scope.ALL, by="ann\x00", why="the CRM is ill")
        clock.sleep(timedelta(days=400))
        state = brake.state()
        assert state.holds(clock.now()) is Scope.ALL
        assert "ann" in state.said()
        assert "the CRM is ill" in state.said()
        brake.put(Scope.NOTHING, by="bob")
        assert brake.state().holds(clock.now()) is Scope.NOTHING

    def test_a_brake_pulled_for_a_while_lets_go_by_itself(self, brake, clock):
        brake.put(Scope.AUTOMATIC, by="ann", until=clock.now() + timedelta(hours=1))
        assert brake.state().holds(clock.now()) is Scope.AUTOMATIC
        clock.sleep(timedelta(hours=1))
        assert brake.state().holds(clock.now()) is Scope.NOTHING

    def test_a_second_pull_weakens_nothing(self, brake, clock):
        brake.put(Scope.ALL, by="ann")
        state = brake.put(Scope.AUTOMATIC, by="bob", until=clock.now() + timedelta(minutes=15))
        assert (state.scope, state.until, state.by) == (Scope.ALL, None, "bob")
        assert brake.state() == state
        brake.put(Scope.NOTHING, by="bob")
        assert brake.state().holds(clock.now()) is Scope.NOTHING

    def test_who_pulled_it_first_and_why_stays_to_be_seen(self, brake, clock):
        began = clock.now()
        assert brake.put(Scope.AUTOMATIC, by="ann", why="the CRM is ill").first is None
        for by in ("bob", "cy"):
            clock.sleep(timedelta(minutes=1))
            state = brake.put(Scope.ALL, by=by, why="worse")
            assert state == brake.state()
            assert state.first == ("ann", "the CRM is ill", began)
            assert (state.by, state.why) == (by, "worse")
        assert "ann: the CRM is ill" in state.said()
        assert "cy: worse" in state.said()
        assert [one.by for one in brake.brake_history(10)] == ["ann", "bob", "cy"]

    def test_whom_a_hundred_others_followed_is_first_still(self, brake):
        brake.put(Scope.ALL, by="zoe")
        brake.put(Scope.NOTHING, by="zoe")
        brake.put(Scope.ALL, by="ann")
        for _ in range(100):
            brake.put(Scope.ALL, by="bob")
        assert brake.state().first.by == "ann"

    @pytest.mark.parametrize("most", [4, 3])
    def test_of_more_pulls_than_are_looked_at_it_says_that_there_were_earlier_ones(
        self, brake, monkeypatch, most
    ):
        monkeypatch.setattr(brakes, "MOST_PULLS", most)
        for by in ("ann", "bob", "cy", "dan"):
            state = brake.put(Scope.ALL, by=by)
        assert state == brake.state()
        first, earlier = ("ann", False) if most == 4 else ("bob", True)
        assert (state.first.by, state.earlier) == (first, earlier)
        assert ("others before" in state.said()) is earlier
        assert brake.put(Scope.NOTHING, by="dan").earlier is False

    def test_a_pull_after_a_release_or_an_end_is_the_first(self, brake, clock):
        brake.put(Scope.ALL, by="ann")
        brake.put(Scope.NOTHING, by="ann")
        assert brake.put(Scope.ALL, by="bob", until=clock.now() + timedelta(hours=1)).first is None
        clock.sleep(timedelta(hours=1))
        assert brake.put(Scope.ALL, by="cy").first is None
        assert brake.put(Scope.ALL, by="dan").first.by == "cy"
        assert brake.put(Scope.NOTHING, by="dan").first is None

    def test_a_release_of_what_was_seen_leaves_a_later_pull_alone(self, brake):
        seen = brake.put(Scope.AUTOMATIC, by="ann").revision
        worse = brake.put(Scope.ALL, by="bob")  # at the same moment, by the clock
        with pytest.raises(BrakeMoved):
            brake.put(Scope.NOTHING, by="ann", seen=seen)
        assert brake.state() == worse
        assert len(brake.brake_history(10)) == 2
        brake.put(Scope.NOTHING, by="ann", seen=worse.revision)
        assert brake.state().scope is Scope.NOTHING

    def test_a_brake_that_nobody_moved_is_seen_as_that(self, brake):
        seen = brake.state().revision
        brake.put(Scope.ALL, by="ann", seen=seen)
        with pytest.raises(BrakeMoved):
            brake.put(Scope.ALL, by="bob", seen=seen)

    def test_its_history_is_kept_oldest_first(self, brake):
        for scope in (Scope.ALL, Scope.NOTHING, Scope.AUTOMATIC):
            brake.put(scope, by="ann")
        assert [one.scope for one in brake.brake_history(2)] == [Scope.NOTHING, Scope.AUTOMATIC]
        assert brake.brake_history(1) == (brake.state(),)
