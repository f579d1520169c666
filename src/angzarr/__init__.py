"""Celery workers that lose nothing: idempotent handlers, retries, dead letters you can replay.

app = Angzarr("orders")

@app.handler(OrderPlaced, domain="order")
def sync_to_crm(event: OrderPlaced, ctx: Context) -> None: ...

app.publish(OrderPlaced(order_id="o-1"), root="o-1")

Names are imported when they are first used, as in Celery: `import angzarr` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr._version import __version__

__all__ = [
    "Address",
    "Aggregate",
    "Angzarr",
    "AngzarrError",
    "Category",
    "Command",
    "CommandRejectedError",
    "CompensationAction",
    "CompensationContext",
    "Context",
    "Event",
    "ExponentialBackoff",
    "Filtered",
    "Flags",
    "GiveUp",
    "Intent",
    "Jitter",
    "Limit",
    "MergeStrategy",
    "NoRetry",
    "NotAllPublished",
    "Policy",
    "Postpone",
    "Priority",
    "ProcessManager",
    "Projection",
    "Publication",
    "RetryLater",
    "Rule",
    "Saga",
    "SagaCompensationFailed",
    "Send",
    "Skip",
    "Verdict",
    "VerdictRule",
    "__version__",
    "aexecute_with_retry",
    "applies",
    "build_revoke_command_book",
    "delegate_to_framework",
    "emit_compensation_events",
    "execute_with_retry",
    "handle_business_response",
    "handles",
    "merge_strategy",
    "pm_delegate_to_framework",
    "pm_emit_compensation_events",
    "process_revocation_flags",
    "reacts_to",
    "rejected",
]

if TYPE_CHECKING:
    from angzarr.aggregates.aggregate import Aggregate
    from angzarr.aggregates.book import Address
    from angzarr.aggregates.command import (
        Command,
        Intent,
        MergeStrategy,
        aexecute_with_retry,
        execute_with_retry,
    )
    from angzarr.aggregates.decorators import applies, handles, merge_strategy, reacts_to, rejected
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
    from angzarr.events.event import Event, Priority
    from angzarr.events.publication import NotAllPublished, Publication
    from angzarr.projections.projection import Projection
    from angzarr.resilience.backoff import Jitter, Policy
    from angzarr.resilience.limit import Limit
    from angzarr.resilience.policies import ExponentialBackoff, Filtered, NoRetry
    from angzarr.resilience.taxonomy import Category, Rule, Verdict, VerdictRule
    from angzarr.sagas.escalation import SagaCompensationFailed
    from angzarr.sagas.rejection import CompensationContext
    from angzarr.sagas.rejection_answers import (
        Flags,
        build_revoke_command_book,
        delegate_to_framework,
        emit_compensation_events,
        handle_business_response,
        pm_delegate_to_framework,
        pm_emit_compensation_events,
        process_revocation_flags,
    )
    from angzarr.sagas.saga import ProcessManager, Saga, Send
else:  # hidden from type checkers, which would take every name for granted
    from importlib import import_module

    #: Module → the public names it holds.
    _HOMES = {
        "angzarr.app.angzarr": ("Angzarr",),
        "angzarr.delivery.compensation": ("CompensationAction",),
        "angzarr.aggregates.aggregate": ("Aggregate",),
        "angzarr.aggregates.book": ("Address",),
        "angzarr.aggregates.command": (
            "Command",
            "Intent",
            "MergeStrategy",
            "aexecute_with_retry",
            "execute_with_retry",
        ),
        "angzarr.aggregates.decorators": (
            "applies",
            "handles",
            "merge_strategy",
            "reacts_to",
            "rejected",
        ),
        "angzarr.delivery.context": ("Context",),
        "angzarr.errors": (
            "AngzarrError",
            "CommandRejectedError",
            "GiveUp",
            "Postpone",
            "RetryLater",
            "Skip",
        ),
        "angzarr.events.event": ("Event", "Priority"),
        "angzarr.events.publication": ("NotAllPublished", "Publication"),
        "angzarr.projections.projection": ("Projection",),
        "angzarr.resilience.backoff": ("Jitter", "Policy"),
        "angzarr.resilience.limit": ("Limit",),
        "angzarr.resilience.policies": ("ExponentialBackoff", "Filtered", "NoRetry"),
        "angzarr.resilience.taxonomy": ("Category", "Rule", "Verdict", "VerdictRule"),
        "angzarr.sagas.rejection": ("CompensationContext",),
        "angzarr.sagas.escalation": ("SagaCompensationFailed",),
        "angzarr.sagas.rejection_answers": (
            "Flags",
            "build_revoke_command_book",
            "delegate_to_framework",
            "emit_compensation_events",
            "handle_business_response",
            "pm_delegate_to_framework",
            "pm_emit_compensation_events",
            "process_revocation_flags",
        ),
        "angzarr.sagas.saga": ("ProcessManager", "Saga", "Send"),
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
