"""Escalations that tests escalate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from angzarr.sagas.escalation import Escalation


def an_escalation(**given: Any) -> Escalation:
    said: dict[str, Any] = {
        "id": "esc-1",
        "saga_name": "saga-order-fulfilment",
        "domain": "order",
        "root": "o-1",
        "triggering_sequence": 4,
        "rejection_reason": "out of stock",
        "compensation_reason": "the aggregate answered nothing",
        "occurred_at": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "correlation_id": "flow-1",
    }
    return Escalation(**{**said, **given})
