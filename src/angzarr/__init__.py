"""Celery workers that lose nothing: idempotent handlers, retries, dead letters you can replay.

app = Angzarr("orders")

@app.handler(OrderPlaced, domain="order")
def sync_to_crm(event: OrderPlaced, ctx: Context) -> None: ...

app.publish(OrderPlaced(order_id="o-1"), root="o-1")

Names are imported when they are first used, as in Celery: `import angzarr` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Angzarr",
    "AngzarrError",
    "Category",
    "Context",
    "Event",
    "GiveUp",
    "Jitter",
    "Limit",
    "NotAllPublished",
    "Policy",
    "Postpone",
    "Priority",
    "Publication",
    "RetryLater",
    "Rule",
    "Skip",
    "Verdict",
    "VerdictRule",
    "__version__",
]

if TYPE_CHECKING:
    from angzarr.app import Angzarr
    from angzarr.delivery.context import Context
    from angzarr.errors import AngzarrError, GiveUp, Postpone, RetryLater, Skip
    from angzarr.events.event import Event, Priority
    from angzarr.events.publication import NotAllPublished, Publication
    from angzarr.resilience.backoff import Jitter, Policy
    from angzarr.resilience.limit import Limit
    from angzarr.resilience.taxonomy import Category, Rule, Verdict, VerdictRule
else:  # hidden from type checkers, which would take every name for granted
    from importlib import import_module

    #: Module → the public names it holds.
    _HOMES = {
        "angzarr.app": ("Angzarr",),
        "angzarr.delivery.context": ("Context",),
        "angzarr.errors": ("AngzarrError", "GiveUp", "Postpone", "RetryLater", "Skip"),
        "angzarr.events.event": ("Event", "Priority"),
        "angzarr.events.publication": ("NotAllPublished", "Publication"),
        "angzarr.resilience.backoff": ("Jitter", "Policy"),
        "angzarr.resilience.limit": ("Limit",),
        "angzarr.resilience.taxonomy": ("Category", "Rule", "Verdict", "VerdictRule"),
    }

    def __getattr__(name: str) -> object:
        """Import *name* from its module and keep it."""
        for module, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(module), name)
                return found
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)

    def __dir__() -> list[str]:
        """List the public names, imported or not."""
        return sorted({*globals(), *__all__})
