from __future__ import annotations

import pytest
from harness.pairs import Pair, alternate, differences, in_turn, medians, middle_rate, ratios


def test_both_sides_run_in_turn():
    ran: list[str] = []

    def side(name, value):
        return lambda: ran.append(name) or value

    pairs = alternate(side("ours", 2.0), side("theirs", 4.0), pairs=5, discarded=1)

    assert ran == ["ours", "theirs"] * 6
    assert pairs == [Pair(2.0, 4.0)] * 5


def test_discarded_runs_are_the_first():
    numbers = iter(range(100))

    def run():
        return float(next(numbers))

    assert alternate(run, run, pairs=5, discarded=2)[0] == Pair(4.0, 5.0)


def test_any_number_of_sides_run_in_turn():
    ran: list[int] = []

    def side(number):
        return lambda: ran.append(number) or number

    rounds = in_turn([side(number) for number in range(3)], rounds=5, discarded=1)

    assert ran == [0, 1, 2] * 6
    assert rounds == [(0, 1, 2)] * 5


def test_the_ratio_of_swapped_times_is_how_many_times_as_fast_ours_is():
    assert ratios([Pair(2.0, 8.0).swapped()]) == [4.0]


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="4 pairs are too few"):
        alternate(float, float, pairs=4)


def test_a_slow_machine_slows_both_sides_of_a_pair():
    pairs = [Pair(10, 20), Pair(1, 2), Pair(5, 10)]
    assert ratios(pairs) == [0.5, 0.5, 0.5]
    assert differences(pairs) == [-10, -1, -5]
    assert medians(pairs) == Pair(5, 10)


def test_the_rate_leaves_out_both_ends():
    steady = [10 + n / 100 for n in range(1000)]
    moments = [0.0, *steady, 500.0]
    assert middle_rate(moments) == pytest.approx(100)
    assert middle_rate(reversed(moments)) == pytest.approx(100)


def test_the_rate_of_events_at_one_moment_is_refused():
    with pytest.raises(ValueError, match="too few"):
        middle_rate([1.0] * 100)
    with pytest.raises(ValueError, match="too few"):
        middle_rate([])
