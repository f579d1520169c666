"""Retry budgets: what a fleet may add to a dependency's load by retrying (spec D3).

Within a rolling window the retries of a dependency cost at most a share of its first attempts and
a few more. A retry takes a token; one that shows that the dependency is well gives it back, so a
budget is spent by retries that fail and by nothing else. The nouns and the port; `budget_rules`
says how many there are, and how long to wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from angzarr.resilience.fields import check_fields
from angzarr.resilience.line import Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How many retries a dependency may cost. Raises ConfigurationError for what cannot work."""

    #: Retries for each first attempt within the window.
    share: float = 0.2
    #: Retries besides; as many may be under way where there are no first attempts.
    least: int = 10
    window: timedelta = timedelta(seconds=60)
    enabled: bool = True

    def __post_init__(self) -> None:
        check_fields(
            "budget settings",
            (self.share >= 0, "share must be 0 or more"),
            (self.least >= 1, "least must be 1 or more, or a lone failure would never be retried"),
            (self.window >= timedelta(seconds=1), "window must be 1 s or more"),
        )


class Spent(NamedTuple):
    """The budget of *name* is spent."""

    name: str
    wait: Wait


class Budgets(Protocol):
    """The retry budgets of a process or a fleet, by the name of the dependency.

    No verb raises: a flow store that is away lets retries go on (fail open).
    """

    def first(self, names: Sequence[str], /) -> None:
        """Count a first attempt for each of *names*; asks nobody."""

    def retry(self, names: Sequence[str], token: str, /) -> Spent | None:
        """Take a token from the budget of each of *names*, or from none of them.

        Returns what is spent, None if *token* may retry. Asking again with a token that was let
        through is harmless.
        """

    def returned(self, names: Sequence[str], token: str, /) -> None:
        """Give back what *token* took: its retry did the dependency no harm, or was not made.

        Harmless for one that took nothing.
        """
