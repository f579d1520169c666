"""Retry policies as code writes them, by the names that projections are used to (spec P1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeGuard

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Jitter, Policy
from angzarr.resilience.category import Category
from angzarr.resilience.fields import check_fields
from angzarr.resilience.policies import NO_RETRY


def ExponentialBackoff(  # noqa: N802 - it is read as the policy that it returns
    *,
    max_retries: int = 3,
    first_delay: float | timedelta = 2,
    multiplier: float = 2,
    max_delay: float | timedelta = 60,
    jitter: Jitter | str = Jitter.NONE,
) -> Policy:
    """Return a policy of *max_retries* retries, hence of one run more.

    The delay before the first retry is *first_delay*, before each other one *multiplier* times
    that before it, at most *max_delay*; spans are seconds or timedeltas. Raises ConfigurationError
    for values that cannot work.
    """
    first, longest = _span(first_delay), _span(max_delay)
    check_fields(
        "ExponentialBackoff",
        (_is_count(max_retries), "max_retries counts the runs after the first: 0 or more"),
        (first is not None, "first_delay must be 0 or more seconds"),
        (longest is not None, "max_delay must be 0 or more seconds"),
        (first is None or longest is None or first <= longest,
         "max_delay must not be less than first_delay"),
        (jitter in list(Jitter), f"jitter is one of {', '.join(Jitter)}"),
    )  # fmt: skip
    assert first is not None  # noqa: S101 - it was checked
    assert longest is not None  # noqa: S101
    return Policy(
        name="exponential_backoff",
        base=first,
        max_delay=longest,
        max_attempts=max_retries + 1,
        multiplier=multiplier,
        jitter=Jitter(jitter),
    )


def Filtered(  # noqa: N802 - as above
    policy: Policy, *, retry_on: Sequence[type[BaseException] | Category | str]
) -> Policy:
    """Return *policy* for errors of these types and categories alone.

    All others become a dead letter at once. A type that is named is retried although nobody
    classified it; what the taxonomy knows and does not retry is not. Raises ConfigurationError for
    what names no error.
    """
    if not isinstance(policy, Policy) or policy.retried is not None:
        msg = "Filtered takes a policy that is not filtered: name all its errors in one retry_on"
        raise ConfigurationError(msg)
    if isinstance(retry_on, str | type) or not retry_on:
        msg = f"retry_on lists exception types and categories, and is {retry_on!r}"
        raise ConfigurationError(msg)
    types = tuple(filter(_is_error, retry_on))
    categories = frozenset(_category(one) for one in retry_on if not _is_error(one))
    name = f"{policy.name}, filtered"
    return replace(policy, name=name, retry_on=categories, retry_errors=types)


def NoRetry() -> Policy:  # noqa: N802 - as above
    """Return the policy of one run, whatever happens."""
    return NO_RETRY


def _span(given: float | timedelta) -> timedelta | None:
    """Return *given* as a span; None: it is none."""
    if isinstance(given, bool) or not isinstance(given, int | float | timedelta):
        return None
    try:
        span = given if isinstance(given, timedelta) else timedelta(seconds=given)
    except (ValueError, OverflowError):
        return None
    return span if span >= timedelta(0) else None


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _is_error(given: object) -> TypeGuard[type[BaseException]]:
    return isinstance(given, type) and issubclass(given, BaseException)


def _category(given: object) -> Category:
    try:
        return Category(given)  # type: ignore[arg-type]
    except ValueError as error:
        known = ", ".join(Category)
        msg = f"retry_on: {given!r} is neither an exception type nor one of {known}"
        raise ConfigurationError(msg) from error
