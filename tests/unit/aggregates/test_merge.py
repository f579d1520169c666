"""The table of C2, for any strategy and any expectation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.aggregates.command import MergeRuling, MergeStrategy, merge_ruling

sequences = st.integers(0, 2**31)


@pytest.mark.parametrize(
    ("strategy", "number", "done"),
    [
        (MergeStrategy.COMMUTATIVE, 0, MergeRuling.STALE),
        (MergeStrategy.STRICT, 1, MergeRuling.ABORT),
        (MergeStrategy.AGGREGATE_HANDLES, 2, MergeRuling.RUN),
        (MergeStrategy.MANUAL, 3, MergeRuling.REVIEW),
    ],
)
@given(expected=sequences, actual=sequences)
def test_a_wrong_expectation_is_ruled_by_the_strategy(strategy, number, done, expected, actual):
    assert strategy == number
    wanted = MergeRuling.RUN if expected == actual else done
    assert merge_ruling(strategy, expected, actual) is wanted


@given(st.sampled_from(MergeStrategy), sequences)
def test_no_expectation_or_the_right_one_is_run(strategy, actual):
    assert merge_ruling(strategy, None, actual) is MergeRuling.RUN
    assert merge_ruling(strategy, actual, actual) is MergeRuling.RUN
