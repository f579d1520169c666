"""Backoff policies by name: ours (spec D3), those of settings, and those that code makes (P1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeGuard

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Jitter, Policy, check_fields
from angzarr.resilience.category import Category


def _policy(
    name: str, base: float, most: float, attempts: int, jitter: Jitter = Jitter.ADDITIVE
) -> Policy:
    return Policy(
        name=name,
        base=timedelta(seconds=base),
        max_delay=timedelta(seconds=most),
        max_attempts=attempts,
        jitter=jitter,
    )


#: One run, whatever happens.
NO_RETRY = _policy("no_retry", 0, 0, 1)

_NAMED = (
    # by operation: base and longest delay in seconds, runs in all
    _policy("fact_append", 1, 60, 3),
    _policy("entity_create", 1, 60, 3),
    _policy("config_update", 1, 30, 3),
    _policy("external_api", 2, 120, 5),
    _policy("webhook", 5, 300, 5),
    _policy("crm_sync", 10, 600, 10),
    # by context
    _policy("realtime", 0.5, 5, 2),
    _policy("background", 5, 300, 10),
    _policy("default", 1, 60, 5),
    _policy("saga_command", 0.01, 2, 10),
    _policy("grpc_connection", 0.1, 5, 30),
    _policy("projection", 2, 60, 4, Jitter.NONE),  # three retries; order matters more than spread
    _policy("event_handler", 0.1, 10, 3, Jitter.EQUAL),  # retries of one step inside a handler
    NO_RETRY,
)

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _NAMED}

DEFAULT = POLICIES["default"]


def named(policies: Mapping[str, Policy], name: str) -> Policy:
    """The policy called *name*; raises ConfigurationError with those that are known."""
    if name not in policies:
        msg = f"there is no backoff policy {name!r}; known are: {_listed(policies)}"
        raise ConfigurationError(msg)
    return policies[name]


def policies_from(
    settings: Mapping[str, Mapping[str, Any]], known: Mapping[str, Policy] = POLICIES
) -> Mapping[str, Policy]:
    """*known* with those of *settings* (name → fields) added.

    Spans are seconds or timedeltas. A known name keeps the fields it is not given; a new one
    starts from the default policy. Raises ConfigurationError naming policy, field and cure.
    """
    return {**known, **{name: _built(name, given, known) for name, given in settings.items()}}


def _built(name: str, given: Mapping[str, Any], known: Mapping[str, Policy]) -> Policy:
    if unknown := set(given) - _FIELDS:
        msg = (
            f"backoff policy {name!r}: unknown field {_listed(unknown)};"
            f" known are: {_listed(_FIELDS)}"
        )
        raise ConfigurationError(msg)
    start = known.get(name, DEFAULT)
    return replace(start, name=name, **{key: _value(name, key, it) for key, it in given.items()})


def _value(policy: str, field: str, given: Any) -> Any:
    try:
        return _READ[field](given)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"backoff policy {policy!r}: {field} cannot be {given!r} ({error})"
        raise ConfigurationError(msg) from error


def _span(given: Any) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=_number(given))


def _number(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError("a number is needed")
    return float(given)


def _count(given: Any) -> int:
    number = _number(given)
    if number != int(number):
        raise ValueError("a whole number is needed")
    return int(number)


def _categories(given: Any) -> frozenset[Category] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise TypeError("a list of categories is needed")
    return frozenset(Category(one) for one in given)


_READ = {
    "base": _span,
    "max_delay": _span,
    "max_attempts": _count,
    "multiplier": _number,
    "jitter": Jitter,
    "ratio": _number,
    "retry_on": _categories,
}

#: What settings may say: classes of errors are named by code alone.
_FIELDS = frozenset(_READ)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def ExponentialBackoff(  # noqa: N802 - it is read as the policy that it returns
    *,
    max_retries: int = 3,
    first_delay: float | timedelta = 2,
    multiplier: float = 2,
    max_delay: float | timedelta = 60,
    jitter: Jitter | str = Jitter.NONE,
) -> Policy:
    """A policy of *max_retries* retries, hence of one run more.

    The delay before the first retry is *first_delay*, before each other one *multiplier* times
    that before it, at most *max_delay*; spans are seconds or timedeltas. Raises ConfigurationError
    for values that cannot work.
    """
    first, longest = _retry_policies_span(first_delay), _retry_policies_span(max_delay)
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
    """*policy* for errors of these types and categories alone.

    All others become a dead letter at once. A type that is named is retried even if it
    is not classified; what the taxonomy knows and does not retry is not. Raises ConfigurationError
    for what names no error.
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
    """The policy of one run, whatever happens."""
    return NO_RETRY


def _retry_policies_span(given: float | timedelta) -> timedelta | None:
    """*given* as a span; None: it is none."""
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
