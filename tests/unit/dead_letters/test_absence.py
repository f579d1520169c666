"""How long a target that was found away is passed over: rules, for every history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.fallback_queue import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Absence,
    Absences,
    found_away,
    is_passed_over,
)

chances = st.floats(0, 1)
moments = st.floats(0, 1e9)
absences = st.builds(Absence, st.integers(1, 10**6), moments, st.just("away"))


@given(st.none() | absences, moments, chances)
def test_a_pause_is_never_shorter_than_a_second_nor_longer_than_half_a_minute(before, now, chance):
    absence = found_away(before, "away", now=now, chance=chance)
    assert 1 - 1e-6 <= absence.until - now <= LONGEST_PAUSE.total_seconds() + 1e-6
    assert is_passed_over(absence, now)
    assert not is_passed_over(absence, absence.until)


@given(st.integers(1, 40), chances)
def test_each_pause_is_at_least_as_long_as_the_one_before_and_doubles_at_first(times, chance):
    before = Absence(times, 0.0, "away")
    one = found_away(before, "away", now=0.0, chance=chance)
    two = found_away(one, "away", now=0.0, chance=chance)
    assert two.until >= one.until
    if one.until * 2 <= LONGEST_PAUSE.total_seconds() * 0.5:
        assert two.until == one.until * 2


@given(chances)
def test_the_first_pause_is_spread_over_its_second_half(chance):
    absence = found_away(None, "away", now=0.0, chance=chance)
    assert absence.until == FIRST_PAUSE.total_seconds() * (0.5 + 0.5 * chance)


@given(st.lists(st.sampled_from("abc"), unique=True), st.sets(st.sampled_from("abc")))
def test_nobody_is_left_out_and_the_order_is_kept(names, away):
    known = Absences(lambda: 0.0, lambda: 0.5)
    for name in away:
        known.is_away(name, known.begin(name), "away")
    present, passed_over = known.in_order(names)
    assert present == [name for name in names if name not in away]
    assert passed_over == [name for name in names if name in away]


def test_those_who_find_a_target_away_at_once_count_once():
    known = Absences(lambda: 0.0, lambda: 1.0)
    before = [known.begin("a") for _ in range(8)]
    for one in before:
        known.is_away("a", one, "away")
    assert known.begin("a") == Absence(1, FIRST_PAUSE.total_seconds(), "away")


def test_when_a_pause_has_ended_one_finds_out_for_all():
    now = [0.0]
    known = Absences(lambda: now[0], lambda: 1.0)
    known.is_away("a", known.begin("a"), "away")
    now[0] = FIRST_PAUSE.total_seconds()
    assert known.in_order(["a"]).present == ["a"]
    known.begin("a")
    assert known.in_order(["a"]).passed_over == ["a"]
    known.is_back("a")
    assert known.in_order(["a"]).present == ["a"]
    assert known.causes(["a"]) == {}
