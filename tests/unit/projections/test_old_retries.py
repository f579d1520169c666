"""How often a projection is tried: by its policy, or as older releases of others said it."""

from __future__ import annotations

import pytest

from angzarr import ExponentialBackoff, NoRetry, Projection
from angzarr.errors import ConfigurationError
from angzarr.projections.projection import DEFAULT, policy_of
from angzarr.resilience.backoff import waits
from angzarr.resilience.policies import POLICIES


def a_class(**said):
    return type("Totals", (Projection,), said)


def seconds(policy):
    return [wait.earliest.total_seconds() for wait in waits(policy)]


def test_who_says_nothing_has_four_runs():
    assert policy_of(a_class()) == DEFAULT
    assert seconds(POLICIES[DEFAULT]) == [2, 4, 8]


def test_the_decorators_word_comes_before_that_of_the_class():
    assert policy_of(a_class(retry_policy="webhook")) == "webhook"
    assert policy_of(a_class(retry_policy="webhook"), NoRetry()) == NoRetry()


@pytest.mark.parametrize(
    ("old", "delays", "spelled"),
    [
        ({"MAX_RETRIES": 3}, [2, 4], "max_retries=2, first_delay=2"),
        ({"MAX_RETRIES": 1}, [], "max_retries=0, first_delay=2"),
        ({"RETRY_BACKOFF_BASE": 0.5}, [0.5, 1], "max_retries=2, first_delay=0.5"),
        (
            {"MAX_RETRIES": 3, "RETRY_BACKOFF_BASE": 90},
            [90, 90],
            "max_retries=2, first_delay=90, max_delay=90",
        ),
    ],
)
def test_the_old_attributes_count_runs_and_say_how_they_are_written_today(old, delays, spelled):
    with pytest.warns(DeprecationWarning, match="deprecated") as warned:
        policy = policy_of(a_class(**old))
    assert seconds(policy) == delays
    (warning,) = warned
    assert str(warning.message).endswith(f"write retry_policy = ExponentialBackoff({spelled})")
    assert warning.filename == __file__
    names = {"ExponentialBackoff": ExponentialBackoff}
    assert eval(f"ExponentialBackoff({spelled})", names) == policy  # noqa: S307 - our own advice


def test_the_old_attributes_yield_to_a_policy():
    with pytest.warns(DeprecationWarning, match=r"Totals.MAX_RETRIES: not heeded beside retry_po"):
        assert policy_of(a_class(MAX_RETRIES=3, retry_policy="webhook")) == "webhook"
    with pytest.warns(DeprecationWarning, match="not heeded"):
        assert policy_of(a_class(MAX_RETRIES=3), NoRetry()) == NoRetry()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "old",
    [
        {"MAX_RETRIES": 0},
        {"MAX_RETRIES": True},
        {"MAX_RETRIES": "3"},
        {"RETRY_BACKOFF_BASE": -1},
        {"RETRY_BACKOFF_BASE": float("inf")},
        {"RETRY_BACKOFF_BASE": "2"},
    ],
)
def test_old_attributes_that_cannot_be_are_refused(old):
    with pytest.raises(ConfigurationError, match=f"Totals.{next(iter(old))}"):
        policy_of(a_class(**old))
