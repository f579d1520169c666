"""The rules of retry budgets, and what they are set to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience import budget as rules
from angzarr.resilience.budget import BudgetSettings
from angzarr.settings.delivery import FlowSettings
from hand_clock import START

SPANS = st.timedeltas(timedelta(seconds=1), timedelta(hours=1))
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=1)).map(lambda span: START + span)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"share": -0.1}, "share must be 0 or more"),
        ({"least": 0}, "least must be 1 or more"),
        ({"window": timedelta(milliseconds=10)}, "window must be 1 s or more"),
    ],
)
def test_what_cannot_work_is_refused(given, said):
    with pytest.raises(ConfigurationError, match=said):
        BudgetSettings(**given)


def test_settings_of_a_name_are_put_over_the_default():
    settings = FlowSettings(
        budgets={"default": {"least": 5}, "crm": {"share": 0.5}, "mail": {"enabled": False}}
    )
    assert settings.default_budget() == BudgetSettings(least=5)
    assert settings.named_budgets() == {
        "crm": BudgetSettings(least=5, share=0.5),
        "mail": BudgetSettings(least=5, enabled=False),
    }


@pytest.mark.parametrize("budgets", [{"crm": {"least": 0}}, {"a b": {}}, {"crm": {"leats": 1}}])
def test_settings_that_cannot_work_are_refused(budgets):
    with pytest.raises(ValueError, match=r"least|not a name|extra|Extra"):
        FlowSettings(budgets=budgets)


@example(
    window=timedelta(seconds=2, microseconds=999_985),
    now=datetime(2026, 1, 1, 12, 0, 0, 499_985, tzinfo=UTC),
)
@given(window=SPANS, now=MOMENTS)
def test_the_oldest_slice_lies_wholly_within_the_window(window, now):
    settings = BudgetSettings(window=window)
    oldest = rules.oldest_slice(now, settings)
    assert rules.slice_of(now - window, settings) < oldest
    assert oldest == rules.slice_of(now, settings) - rules.SLICES + 1


@given(
    window=SPANS,
    firsts=st.integers(0, 10_000),
    waiting=st.integers(1, 200),
    chance=st.floats(0, 1),
)
def test_waits_grow_by_a_tokens_time_up_to_half_the_window(window, firsts, waiting, chance):
    settings = BudgetSettings(window=window)
    line = rules.RetryLine(START, rules.pace(firsts, settings))
    last = None
    for _ in range(waiting):
        after, wait = rules.refused(line, START, settings)
        assert wait.by(chance) <= window / 2 + timedelta(microseconds=1)
        if after == line:  # no place in line
            assert wait.by(0.0) >= window / 4 - timedelta(microseconds=1)
            break
        assert wait.least >= rules.SHORTEST
        if last is not None:
            step = (wait.least - last).total_seconds()
            assert step == pytest.approx(line.pace.total_seconds(), abs=1e-5)
        line, last = after, wait.least
