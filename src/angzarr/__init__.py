"""Celery workers that lose nothing: idempotent handlers, retries, dead letters you can replay.

app = Angzarr("orders")

@app.handler(OrderPlaced, domain="order")
def sync_to_crm(event: OrderPlaced, ctx: Context) -> None: ...

app.publish(OrderPlaced(order_id="o-1"), root="o-1")
"""

from __future__ import annotations

from angzarr.app import Angzarr
from angzarr.delivery.context import Context
from angzarr.errors import AngzarrError, GiveUp, Postpone, RetryLater, Skip
from angzarr.events.event import Event, Priority
from angzarr.resilience.backoff import Jitter, Policy
from angzarr.resilience.taxonomy import Category, Rule, Verdict, VerdictRule

__version__ = "0.1.0"

__all__ = [
    "Angzarr",
    "AngzarrError",
    "Category",
    "Context",
    "Event",
    "GiveUp",
    "Jitter",
    "Policy",
    "Postpone",
    "Priority",
    "RetryLater",
    "Rule",
    "Skip",
    "Verdict",
    "VerdictRule",
    "__version__",
]
