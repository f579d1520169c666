"""What moves the brake, and what it holds."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from tests.hand_clock import START

from angzarr.analysis.ledger.emergency_stop import (
    BrakeState,
    QuietHours,
    Scope,
    asleep,
    moved,
    why_not_now,
)
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.transition import WAKES

NEVER = QuietHours(place=ZoneInfo("UTC"))
ORDER = [Scope.NOTHING, Scope.AUTOMATIC, Scope.ALL]
HOURS = st.integers(-3, 48).map(lambda hours: START + timedelta(hours=hours))
STATES = st.builds(BrakeState, scope=st.sampled_from(ORDER), until=st.none() | HOURS)


@given(before=STATES, asked=STATES, later=st.integers(0, 60).map(lambda h: timedelta(hours=h)))
def test_a_pull_holds_at_any_time_at_least_what_was_held_and_what_was_asked(before, asked, later):
    now = START + later
    after = moved(before, asked, START)
    held = [one.holds(now) for one in (before, asked)]
    if asked.scope is Scope.NOTHING:
        assert after == asked
    elif before.holds(START) is not Scope.NOTHING:
        assert ORDER.index(after.holds(now)) >= max(map(ORDER.index, held))


@given(before=STATES, asked=STATES)
def test_who_pulls_and_why_is_told_of_the_last_one(before, asked):
    assert moved(before, asked, START).by == asked.by


def test_one_that_is_over_adds_nothing():
    over = BrakeState(scope=Scope.ALL, until=START)
    asked = BrakeState(scope=Scope.AUTOMATIC, until=START + timedelta(hours=1))
    assert moved(over, asked, START) == asked


def test_all_lets_nothing_be_sent_that_has_begun_or_not():
    every = asleep(BrakeState(scope=Scope.ALL), NEVER, START)
    assert every == WAKES - {Status.FAILED}
    assert asleep(BrakeState(scope=Scope.AUTOMATIC), NEVER, START) == {Status.WAITING}
    assert asleep(BrakeState(), NEVER, START) == frozenset()


def test_a_person_is_told_who_pulled_it_and_what_to_do():
    state = BrakeState(scope=Scope.ALL, by="ann", why="the CRM is ill")
    said = "the brake was pulled by ann: the CRM is ill: release it first"
    assert why_not_now(state, START).startswith(said)
    assert why_not_now(BrakeState(scope=Scope.AUTOMATIC, by="ann"), START) == ""
