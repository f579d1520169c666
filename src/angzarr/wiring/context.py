"""The context of an app: what its parts share.

No part knows the app. It gets this, and the parts or functions that it needs besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from angzarr.adapters.celery.worker.queue_pauser import HeldDomains
from angzarr.adapters.celery.worker.worker import Stopping
from angzarr.aggregates.aggregate import AggregateType
from angzarr.delivery.compensation import Undos
from angzarr.delivery.handlers import Handlers, Subscription
from angzarr.delivery.invoke import Hook
from angzarr.projections.projection import Projection
from angzarr.resilience.policy_rules import PolicyRules
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.settings.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """What the parts of an app share. Registries in it grow while modules are imported."""

    #: The app's name, which its letters bear; None if it has none.
    main: str | None
    settings: Settings
    policy_rules: PolicyRules
    #: Handlers by event type or `domain/*` that this process need not import.
    routes: Mapping[str, Sequence[Subscription]]
    #: Gives the broker's URL, or several behind another; Celery reads its configuration late.
    broker: Callable[[], str]
    rules: tuple[Rule, ...] = ()
    verdicts: tuple[VerdictRule, ...] = ()
    hooks: tuple[Hook, ...] = ()
    #: What spreads waits and draws shares, in [0, 1).
    chance: Callable[[], float]
    stopping: Stopping = field(default_factory=Stopping)
    held_domains: HeldDomains = field(default_factory=HeldDomains)
    handlers: Handlers = field(default_factory=Handlers)
    #: What undoes finished steps, by name.
    undos: Undos = field(default_factory=Undos)
    #: By domain; process managers have their name for a domain.
    aggregates: dict[str, AggregateType] = field(default_factory=dict)
    #: Sagas and process managers by name.
    sagas: dict[str, type] = field(default_factory=dict)
    #: By name.
    projections: dict[str, type[Projection]] = field(default_factory=dict)

    @property
    def broker_url(self) -> str:
        """The broker's URL, or several behind another, with the default that Celery would use."""
        return self.broker()

    @classmethod
    def of(cls, settings: Settings, **others: Any) -> AppContext:
        """The context of an app with *settings*."""
        return cls(**_by(settings), **others)

    def substitute(self, **others: Any) -> None:
        """Put *others* in the place of fields: only a stage for tests and the demo do so."""
        if "settings" in others:
            others |= _by(others["settings"])
        for name, value in others.items():
            object.__setattr__(self, name, value)


def _by(settings: Settings) -> dict[str, Any]:
    """The fields that follow from *settings*."""
    routes = {
        key: [Subscription(route.handler, route.queue) for route in routes]
        for key, routes in settings.routes.items()
    }
    return {
        "settings": settings,
        "policy_rules": settings.retry.policy_rules(),
        "routes": routes,
    }
