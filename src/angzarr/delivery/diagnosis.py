"""Diagnosis: what the road itself finds wrong with a delivery, in the taxonomy's words."""

from __future__ import annotations

from angzarr.errors import (
    CircuitOpenError,
    DeliveryError,
    LimitExceededError,
    RetryBudgetSpentError,
)
from angzarr.resilience.taxonomy import Category, Classification

GIVEN_UP = Classification(category=Category.CLIENT, code="GIVEN_UP", reason="the handler said so")
UNREADABLE = Classification(
    category=Category.CLIENT, code="UNDELIVERABLE", reason="the message does not fit its handler"
)
NO_HANDLER = Classification(
    category=Category.CLIENT, code="UNKNOWN_TASK", reason="no handler of this name here"
)
POISON = Classification(
    category=Category.UNKNOWN, code="POISON", reason="starts that nobody settled"
)
CONFLICT = Classification(
    category=Category.INTEGRITY, code="IDEMPOTENCY_CONFLICT", reason="one key, two bodies"
)
NO_FOLLOWER = Classification(
    category=Category.CLIENT, code="UNFOLLOWABLE", reason="its result cannot be handed on"
)
UNSETTLED = Classification(
    category=Category.UNKNOWN, code="UNSETTLED", reason="what became of it cannot be made true"
)
REVOKED = Classification(
    category=Category.CLIENT, code="REVOKED", reason="somebody revoked the task"
)
EXPIRED = Classification(
    category=Category.CLIENT, code="EXPIRED", reason="it arrived after its publisher's expiry"
)


def too_old(error: DeliveryError) -> Classification:
    """Return what is wrong with what waited longer than its maximum age, for *error*."""
    return Classification(
        category=Category.EXTERNAL,
        code=_WAITED_FOR[type(error)],
        reason="waited longer than its maximum age",
    )


_WAITED_FOR: dict[type[DeliveryError], str] = {
    CircuitOpenError: "CIRCUIT_OPEN",
    RetryBudgetSpentError: "RETRY_BUDGET_SPENT",
    LimitExceededError: "LIMIT_EXCEEDED",
}
