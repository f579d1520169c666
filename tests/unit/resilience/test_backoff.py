"""Backoff: the arithmetic of D3, for every policy and any attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Jitter, Policy, delay, filtered, next_delay, waits
from angzarr.resilience.category import Category
from angzarr.resilience.policies import POLICIES

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=2)  # timedelta rounds to microseconds

chances = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10_000)


@st.composite
def policies(draw: st.DrawFn, most: int = 10_000) -> Policy:
    base = draw(st.timedeltas(timedelta(0), timedelta(hours=1)))
    return Policy(
        name="drawn",
        base=base,
        max_delay=base + draw(st.timedeltas(timedelta(0), timedelta(hours=1))),
        max_attempts=draw(st.integers(1, most)),
        multiplier=draw(st.floats(1, 100)),
        jitter=draw(st.sampled_from(Jitter)),
        ratio=draw(st.floats(0, 1)),
    )


def spans(policy: Policy, attempt: int) -> tuple[float, float]:
    low, high = delay(policy, attempt, 0.0), delay(policy, attempt, 1.0)
    return low.total_seconds(), high.total_seconds()


@pytest.mark.parametrize(
    ("attempt", "low", "high"),
    [(1, 1, 1.5), (2, 2, 3), (3, 4, 6), (4, 8, 12), (5, 16, 24), (7, 60, 90), (10_000, 60, 90)],
)
def test_default_policy_waits_as_the_spec_says(attempt: int, low: float, high: float) -> None:
    assert spans(POLICIES["default"], attempt) == (low, high)


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [
        (Jitter.ADDITIVE, 1.0, 1.5),
        (Jitter.EQUAL, 0.5, 1.0),
        (Jitter.FULL, 0.0, 1.0),
        (Jitter.NONE, 1.0, 1.0),
    ],
)
def test_jitter_spreads_within_its_bounds(jitter: Jitter, low: float, high: float) -> None:
    policy = Policy(name="p", base=SECOND, max_delay=SECOND, max_attempts=2, jitter=jitter)
    assert spans(policy, 1) == (low, high)


@given(policies(), attempts, chances)
def test_no_delay_is_negative_or_beyond_the_stated_bound(
    policy: Policy, attempt: int, chance: float
) -> None:
    on_top = 1 + policy.ratio if policy.jitter is Jitter.ADDITIVE else 1
    assert timedelta(0) <= delay(policy, attempt, chance) <= policy.max_delay * on_top + TICK


@given(policies(), attempts, chances)
def test_a_later_attempt_never_waits_less(policy: Policy, attempt: int, chance: float) -> None:
    assert delay(policy, attempt + 1, chance) >= delay(policy, attempt, chance) - TICK


@given(attempts.filter(lambda n: n > 6), chances, chances)
def test_jitter_still_works_at_the_cap(attempt: int, one: float, other: float) -> None:
    policy = POLICIES["default"]
    apart = abs(delay(policy, attempt, one) - delay(policy, attempt, other))
    assert abs(apart - policy.max_delay * 0.5 * abs(one - other)) <= TICK


@given(policies(), attempts, chances)
def test_attempts_end_with_the_policy(policy: Policy, attempt: int, chance: float) -> None:
    assert (next_delay(policy, attempt, chance) is None) == (attempt >= policy.max_attempts)


@given(policies(), attempts, chances, st.timedeltas(timedelta(0), timedelta(days=1)))
def test_what_the_other_side_asks_for_is_the_least_delay(
    policy: Policy, attempt: int, chance: float, least: timedelta
) -> None:
    found = next_delay(policy, attempt, chance, least)
    if found is not None:
        assert found >= least
        assert found >= delay(policy, attempt, chance)


@given(
    policies(most=49),
    st.none() | st.timedeltas(timedelta(0), timedelta(days=1)),
    st.lists(chances, min_size=50, max_size=50),
)
def test_the_schedule_bounds_every_road_to_the_last_run(
    policy: Policy, least: timedelta | None, luck: list[float]
) -> None:
    rows = list(waits(policy, least))
    assert [row.attempt for row in rows] == list(range(1, policy.max_attempts))
    passed = timedelta(0)
    for row in rows:
        waited = next_delay(policy, row.attempt, luck[row.attempt - 1], least)
        assert waited is not None
        passed += waited
        assert row.earliest - TICK <= waited <= row.latest + TICK
        assert row.ends_earliest - 50 * TICK <= passed <= row.ends_latest + 50 * TICK


def test_callers_told_the_same_wait_are_spread_behind_it() -> None:
    asked = timedelta(seconds=30)
    waits = {next_delay(POLICIES["default"], 1, n / 10, asked) for n in range(10)}
    assert len(waits) == 10
    assert waits >= {asked}
    assert all(wait is not None and wait < asked + SECOND for wait in waits)


def test_filtered_policy_retries_only_what_it_names() -> None:
    only = filtered(POLICIES["webhook"], frozenset({Category.TRANSIENT}))
    assert only.retries(Category.TRANSIENT)
    assert not only.retries(Category.SERVER)
    assert POLICIES["webhook"].retries(Category.SERVER)
    assert only.max_attempts == POLICIES["webhook"].max_attempts


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"base": -SECOND}, "base"),
        ({"max_delay": SECOND / 2}, "max_delay"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"multiplier": 0.5}, "multiplier"),
        ({"multiplier": float("nan")}, "multiplier"),
        ({"multiplier": float("inf")}, "multiplier"),
        ({"ratio": 1.5}, "ratio"),
    ],
)
def test_policy_that_cannot_work_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    good = {"name": "mine", "base": SECOND, "max_delay": SECOND, "max_attempts": 2}
    with pytest.raises(ConfigurationError, match=f"'mine'.*{said}"):
        Policy(**(good | wrong))  # type: ignore[arg-type]
