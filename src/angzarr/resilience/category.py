"""Categories: the nine kinds of failure, and what becomes of a delivery by each (spec D2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from angzarr.errors import ConfigurationError


class Category(StrEnum):
    """What kind of failure an error is."""

    TRANSIENT = "transient"  # passes by itself: time-out, rate limit, deadlock, lost connection
    CONFLICT = "conflict"  # somebody else was first: run again on fresh state
    SERVER = "server"  # the other side broke, perhaps after it did the work
    EXTERNAL = "external"  # a third party is down
    CLIENT = "client"  # what was asked is wrong and stays wrong
    INTEGRITY = "integrity"  # a duplicate, or a constraint violated
    AUTHORIZATION = "authorization"  # not allowed
    BUDGET = "budget"  # the money or quota is spent
    UNKNOWN = "unknown"  # not classified: a bug


#: Categories that another run may cure; SERVER only where the handler is idempotent.
RETRYABLE = frozenset({Category.TRANSIENT, Category.CONFLICT, Category.SERVER, Category.EXTERNAL})

#: Categories that say "the dependency is ill"; all others are healthy answers (spec D5).
ILLNESS = frozenset({Category.TRANSIENT, Category.SERVER, Category.EXTERNAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What an error is. `reason` names the evidence; it never quotes the error's text."""

    category: Category
    #: Short and stable, for letters, facts and metrics: ``HTTP_503``, ``SQLSTATE_40P01``.
    code: str = "UNKNOWN"
    reason: str = ""
    #: The least delay the other side asked for; None: it did not say.
    retry_after: timedelta | None = None


def retryable(category: Category, *, idempotent: bool = True) -> bool:
    """True if another run may help; SERVER errors ask for an idempotent handler."""
    return category in RETRYABLE and (idempotent or category is not Category.SERVER)


class Verdict(StrEnum):
    """What to do about an error. RETRY holds only while the policy has attempts left."""

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRule:
    """What becomes of errors of `category` that are not retried; empty `event_type`: of all."""

    category: Category
    verdict: Verdict
    event_type: str = ""

    def __post_init__(self) -> None:
        if self.verdict is Verdict.RETRY:
            msg = (
                f"{self.category} errors cannot be declared retryable; "
                "give the error another category with a Rule instead"
            )
            raise ConfigurationError(msg)
        if self.category in RETRYABLE - {Category.SERVER}:
            msg = f"{self.category} errors are always retried; a verdict for them has no effect"
            raise ConfigurationError(msg)


def verdict_for(
    category: Category,
    rules: Iterable[VerdictRule] = (),
    *,
    event_type: str = "",
    idempotent: bool = True,
    named: bool = False,
) -> Verdict:
    """The verdict; a rule for the event type beats one for all, a later one an earlier.

    *named*: the policy names the error's type. Then it is retried though it is not classified.
    """
    if retryable(category, idempotent=idempotent) or (named and category is Category.UNKNOWN):
        return Verdict.RETRY
    verdicts = {rule.event_type: rule.verdict for rule in rules if rule.category is category}
    return verdicts.get(event_type) or verdicts.get("") or Verdict.DEAD_LETTER
