"""Backoff: how long until the next attempt (spec D3). Pure: chance comes in, a span goes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from angzarr.errors import ConfigurationError
from angzarr.resilience.category import Category


def check_fields(what: str, *checks: tuple[bool, str]) -> None:
    """Raise ConfigurationError with *what* and the sentence of each check that does not hold."""
    wrong = [said for fits, said in checks if not fits]
    if wrong:
        msg = f"{what}: {'; '.join(wrong)}"
        raise ConfigurationError(msg)


class Jitter(StrEnum):
    """How chance spreads a delay d, so that what failed together does not come back together."""

    ADDITIVE = "additive"  # d … d·(1 + ratio)
    EQUAL = "equal"  # d/2 … d
    FULL = "full"  # 0 … d
    NONE = "none"  # d


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often and how patiently to try. `max_attempts` counts handler runs in all.

    Raises ConfigurationError for values that cannot work.
    """

    name: str
    base: timedelta
    max_delay: timedelta
    max_attempts: int
    multiplier: float = 2.0
    jitter: Jitter = Jitter.ADDITIVE
    #: Share of the delay that additive jitter puts on top at most.
    ratio: float = 0.5
    #: Categories that are retried; None: all that the taxonomy retries.
    retry_on: frozenset[Category] | None = None
    #: Exception types that are retried beside those categories; None: they say nothing.
    retry_errors: tuple[type[BaseException], ...] | None = None

    def __post_init__(self) -> None:
        zero = timedelta(0)
        check_fields(
            f"backoff policy {self.name!r}",
            (self.base >= zero, "base must be 0 s or more"),
            (self.max_delay >= self.base, "max_delay must not be less than base"),
            (self.max_attempts >= 1, "max_attempts counts handler runs, so it is 1 or more"),
            (1 <= self.multiplier < float("inf"), "multiplier must be 1 or more"),
            (0 <= self.ratio <= 1, "ratio must be between 0 and 1"),
        )

    def retries(self, category: Category, error: BaseException | None = None) -> bool:
        """True if this policy retries errors of *category* that may be retried at all.

        *error* is the one in question; without it none is of a type that is named.
        """
        if self.retry_on is None and self.retry_errors is None:
            return True
        return category in (self.retry_on or ()) or self.names(error)

    def names(self, error: BaseException | None) -> bool:
        """True if *error* is of a type that this policy names."""
        return isinstance(error, self.retry_errors or ())

    @property
    def retried(self) -> tuple[str, ...] | None:
        """What it retries alone, for people: categories and classes; None: all that may be."""
        if self.retry_on is None and self.retry_errors is None:
            return None
        classes = (f"{kind.__module__}.{kind.__qualname__}" for kind in self.retry_errors or ())
        return (*sorted(self.retry_on or ()), *(one.removeprefix("builtins.") for one in classes))


def filtered(policy: Policy, categories: frozenset[Category]) -> Policy:
    """*policy*, retrying only errors of *categories*."""
    return replace(policy, retry_on=categories)


def delay(policy: Policy, attempt: int, chance: float) -> timedelta:
    """The delay after run number *attempt* (from 1); *chance* is in [0, 1).

    Jitter is put on the capped delay and not clamped again, or a herd would form anew at the
    cap: additive jitter reaches up to ``max_delay·(1 + ratio)``, the others stay within
    ``max_delay``.
    """
    return _spread(policy, _steady(policy, attempt), chance)


def next_delay(
    policy: Policy, attempt: int, chance: float, least: timedelta | None = None
) -> timedelta | None:
    """The delay before the next run, or None if *attempt* was the last.

    Never less than *least*, what the other side asked for; all with the same *least* are
    spread behind it by as much as the policy spreads this attempt.
    """
    if attempt >= policy.max_attempts:
        return None
    wanted = delay(policy, attempt, chance)
    if least is None:
        return wanted
    return max(wanted, least + wanted - delay(policy, attempt, 0.0))


class BackoffWait(NamedTuple):
    """The wait after run number `attempt`, and how long after the first failure it ends.

    Each span has its shortest and its longest value; the duration of runs is not in them.
    """

    attempt: int
    earliest: timedelta
    latest: timedelta
    ends_earliest: timedelta
    ends_latest: timedelta


def waits(policy: Policy, least: timedelta | None = None) -> Iterator[BackoffWait]:
    """Yield every wait of an event that fails each time, with *least* each time."""
    first = last = timedelta(0)
    for attempt in range(1, policy.max_attempts):
        earliest, latest = (next_delay(policy, attempt, chance, least) for chance in (0.0, 1.0))
        assert earliest is not None  # noqa: S101 - it is not the last run
        assert latest is not None  # noqa: S101
        first, last = first + earliest, last + latest
        yield BackoffWait(attempt, earliest, latest, first, last)


def _steady(policy: Policy, attempt: int) -> timedelta:
    base, most = policy.base.total_seconds(), policy.max_delay.total_seconds()
    try:
        grown = base * policy.multiplier ** (attempt - 1)
    except OverflowError:
        return policy.max_delay if base else policy.base
    return timedelta(seconds=min(grown, most))


def _spread(policy: Policy, steady: timedelta, chance: float) -> timedelta:
    match policy.jitter:
        case Jitter.ADDITIVE:
            return steady + steady * (policy.ratio * chance)
        case Jitter.EQUAL:
            return steady * (0.5 + 0.5 * chance)
        case Jitter.FULL:
            return steady * chance
        case Jitter.NONE:
            return steady
