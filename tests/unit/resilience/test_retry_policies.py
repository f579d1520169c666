"""Retry policies as code writes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr import Category
from angzarr.errors import ConfigurationError
from angzarr.resilience import ExponentialBackoff, Filtered, Jitter, NoRetry
from angzarr.resilience.backoff import next_delay, waits
from angzarr.resilience.policies import POLICIES


def delays(policy):
    return [wait.latest.total_seconds() for wait in waits(policy)]


def test_the_default_is_what_projections_have():
    assert delays(ExponentialBackoff()) == delays(POLICIES["projection"]) == [2, 4, 8]


def test_retries_are_counted_without_the_first_run():
    policy = ExponentialBackoff(max_retries=4, first_delay=1, multiplier=3, max_delay=20)
    assert policy.max_attempts == 5
    assert delays(policy) == [1, 3, 9, 20]
    assert delays(ExponentialBackoff(max_retries=0)) == delays(NoRetry()) == []


def test_spans_are_seconds_or_timedeltas():
    spelled = ExponentialBackoff(first_delay=timedelta(seconds=2), max_delay=timedelta(minutes=1))
    assert spelled == ExponentialBackoff()


def test_jitter_is_asked_for():
    policy = ExponentialBackoff(jitter="full")
    assert policy.jitter is Jitter.FULL
    assert next_delay(policy, 1, 0.0) == timedelta(0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"max_retries": -1}, "max_retries counts the runs after the first"),
        ({"max_retries": 2.5}, "max_retries counts"),
        ({"max_retries": True}, "max_retries counts"),
        ({"first_delay": -1}, "first_delay must be 0 or more"),
        ({"first_delay": "2"}, "first_delay must be 0 or more"),
        ({"first_delay": float("nan")}, "first_delay must be 0 or more"),
        ({"max_delay": float("inf")}, "max_delay must be 0 or more"),
        ({"first_delay": 61}, "max_delay must not be less than first_delay"),
        ({"jitter": "some"}, "jitter is one of additive"),
        ({"multiplier": 0.5}, "multiplier must be 1 or more"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else "",
)
def test_values_that_cannot_work_are_refused_by_name(said, why):
    with pytest.raises(ConfigurationError, match=why):
        ExponentialBackoff(**said)


# -- filtered ------------------------------------------------------------------------------


class Slow(TimeoutError):
    pass


def test_only_what_is_named_is_retried():
    policy = Filtered(ExponentialBackoff(), retry_on=(TimeoutError, Category.CONFLICT))
    assert policy.max_attempts == 4
    assert policy.retries(Category.TRANSIENT, TimeoutError())
    assert policy.retries(Category.TRANSIENT, Slow())
    assert not policy.retries(Category.TRANSIENT, ConnectionError())
    assert policy.retries(Category.CONFLICT, ConnectionError())
    assert not policy.retries(Category.TRANSIENT)
    assert policy.retried == ("conflict", "TimeoutError")


def test_categories_alone_may_be_named_by_their_text():
    policy = Filtered(NoRetry(), retry_on=["transient"])
    assert policy.retries(Category.TRANSIENT, KeyError())
    assert not policy.retries(Category.SERVER, KeyError())


def test_who_is_not_filtered_retries_all_that_may_be():
    assert ExponentialBackoff().retries(Category.SERVER, KeyError())
    assert ExponentialBackoff().retried is None


@pytest.mark.parametrize(
    ("retry_on", "why"),
    [
        ((), "retry_on lists exception types"),
        (TimeoutError, "retry_on lists exception types"),
        ("transient", "retry_on lists exception types"),
        (("often",), "'often' is neither an exception type nor one of"),
        ((int,), "is neither an exception type nor one of"),
    ],
    ids=["none", "a-type", "a-text", "no-category", "no-error"],
)
def test_what_names_no_error_is_refused(retry_on, why):
    with pytest.raises(ConfigurationError, match=why):
        Filtered(ExponentialBackoff(), retry_on=retry_on)


@pytest.mark.parametrize("policy", ["projection", Filtered(NoRetry(), retry_on=[OSError])])
def test_a_filter_is_put_on_a_policy_once(policy):
    with pytest.raises(ConfigurationError, match="takes a policy that is not filtered"):
        Filtered(policy, retry_on=[TimeoutError])
