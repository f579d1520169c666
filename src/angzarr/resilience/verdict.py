"""What becomes of a failed delivery, by category and event type (spec D2, decisions 26)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from angzarr.errors import ConfigurationError
from angzarr.resilience.category import RETRYABLE, Category, retryable


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
    """Return the verdict; a rule for the event type beats one for all, a later one an earlier.

    *named*: the policy names the error's type. Then it is retried where nobody classified it.
    """
    if retryable(category, idempotent=idempotent) or (named and category is Category.UNKNOWN):
        return Verdict.RETRY
    verdicts = {rule.event_type: rule.verdict for rule in rules if rule.category is category}
    return verdicts.get(event_type) or verdicts.get("") or Verdict.DEAD_LETTER
