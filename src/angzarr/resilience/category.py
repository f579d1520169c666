"""The nine categories of failure and what one classification says (spec D2). Values, no rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


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
    UNKNOWN = "unknown"  # nobody classified it: a bug


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
    """Return whether another run may help; SERVER errors ask for an idempotent handler (26)."""
    return category in RETRYABLE and (idempotent or category is not Category.SERVER)
