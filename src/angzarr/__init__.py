"""Celery workers that lose nothing: idempotent handlers, retries, dead letters you can replay.

app = Angzarr("orders")

@app.handler(OrderPlaced, domain="order")
def sync_to_crm(event: OrderPlaced, ctx: Context) -> None: ...

app.publish(OrderPlaced(order_id="o-1"), root="o-1")

Names are imported when they are first used, as in Celery: `import angzarr` alone costs nothing.
What fewer handlers need is in `angzarr.aggregates`, `events`, `resilience` and `sagas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr._version import __version__
from angzarr.runtime.late_names import late_names

__all__ = [
    "Aggregate",
    "Angzarr",
    "AngzarrError",
    "Category",
    "CommandRejectedError",
    "CompensationAction",
    "Context",
    "Event",
    "GiveUp",
    "Limit",
    "Policy",
    "Postpone",
    "ProcessManager",
    "Projection",
    "Publication",
    "RetryLater",
    "Rule",
    "Saga",
    "Send",
    "Skip",
    "__version__",
    "applies",
    "handles",
    "reacts_to",
    "rejected",
]

if TYPE_CHECKING:
    from angzarr.aggregates.aggregate import Aggregate
    from angzarr.aggregates.decorators import applies, handles, reacts_to, rejected
    from angzarr.app.angzarr import Angzarr
    from angzarr.delivery.compensation import CompensationAction
    from angzarr.delivery.context import Context
    from angzarr.errors import (
        AngzarrError,
        CommandRejectedError,
        GiveUp,
        Postpone,
        RetryLater,
        Skip,
    )
    from angzarr.events.event import Event
    from angzarr.events.publication import Publication
    from angzarr.projections.projection import Projection
    from angzarr.resilience.backoff import Policy
    from angzarr.resilience.limit import Limit
    from angzarr.resilience.taxonomy import Category, Rule
    from angzarr.sagas.saga import ProcessManager, Saga, Send
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "angzarr.aggregates.aggregate": ("Aggregate",),
            "angzarr.aggregates.decorators": (
                "applies",
                "handles",
                "reacts_to",
                "rejected",
            ),
            "angzarr.app.angzarr": ("Angzarr",),
            "angzarr.delivery.compensation": ("CompensationAction",),
            "angzarr.delivery.context": ("Context",),
            "angzarr.errors": (
                "AngzarrError",
                "CommandRejectedError",
                "GiveUp",
                "Postpone",
                "RetryLater",
                "Skip",
            ),
            "angzarr.events.event": ("Event",),
            "angzarr.events.publication": ("Publication",),
            "angzarr.projections.projection": ("Projection",),
            "angzarr.resilience.backoff": ("Policy",),
            "angzarr.resilience.limit": ("Limit",),
            "angzarr.resilience.taxonomy": (
                "Category",
                "Rule",
            ),
            "angzarr.sagas.saga": (
                "ProcessManager",
                "Saga",
                "Send",
            ),
        },
    )
