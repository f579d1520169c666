from __future__ import annotations

import pytest
from harness.figure import Aim, Figure, Measured


def figure(**changes):
    given = {
        "key": "k", "title": "t", "unit": "ratio", "aim": "≤ 1.15", "against": "x", "how": "y",
        "measure": lambda: Measured(values=[1.0]),
    }  # fmt: skip
    return Figure(**{**given, **changes})


@pytest.mark.parametrize(
    ("aim", "value", "reached"),
    [
        ("≤ 150 ms", 150, True),
        ("≤ 150 ms", 150.1, False),
        ("≥ 0.90", 0.9, True),
        ("≥ 0.90", 0.899, False),
        ("= 0", 0, True),
        ("= 0", 1, False),
    ],
)
def test_an_aim_is_reached_at_its_bound(aim, value, reached):
    assert Aim.of(aim).reached(value) is reached


def test_an_unknown_aim_is_refused():
    with pytest.raises(ValueError, match="an aim starts with"):
        Aim.of("about 3")


def test_the_median_run_counts():
    entry = figure().entry(Measured(values=[5.0, 1.0, 1.1, 0.9, 2.0], detail={"broker": "b"}))
    assert entry == {
        "value": 1.1,
        "unit": "ratio",
        "aim": "≤ 1.15",
        "runs": 5,
        "spread": [0.9, 5.0],
        "against": "x",
        "detail": {"broker": "b"},
    }


@pytest.mark.parametrize(
    ("changes", "values", "worst"),
    [
        ({"aim": "= 0"}, [0, 0, 3, 0, 0], 3),
        ({"aim": "= 1"}, [1, 1, 0, 1, 1], 0),
        ({"aim": "≤ 10 s", "worst": True}, [1, 2, 9, 2, 1], 9),
        ({"aim": "≥ 1000", "worst": True}, [5, 2, 9, 2, 3], 2),
    ],
)
def test_the_worst_run_counts_where_one_failure_is_too_many(changes, values, worst):
    assert figure(**changes).entry(Measured(values=values))["value"] == worst
