"""Settings of what happens to a delivery: retries, flow control, order, messages, routes, facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from angzarr.delivery.handlers import ALL
from angzarr.events.event import Priority
from angzarr.facts.outbox import MOST_WAITING
from angzarr.resilience.breaker import BreakerSettings
from angzarr.resilience.breaker_guard import check_name
from angzarr.resilience.budget import BudgetSettings
from angzarr.resilience.category import Category
from angzarr.resilience.limit import Limit, Per
from angzarr.resilience.policies import policies_from
from angzarr.resilience.policy_rules import PolicyRules, policy_rules
from angzarr.runtime.json_bounds import Bounds
from angzarr.settings.base import DatabaseUrl, Keep, Section, Span, checked_domain, said

T = TypeVar("T")


#: Budgets of a month are added up from facts.
_LEAST_KEPT: Final = timedelta(days=32)


class FactSettings(Section):
    """Where facts go besides the structured log (spec F1)."""

    url: DatabaseUrl | None = Field(default=None, repr=False)
    #: Migrate the table of facts automatically.
    migrate: bool = True
    #: One INFO line a fact; by default only where no database takes them.
    log: bool | None = None
    #: Also as OpenTelemetry logs, by the logger provider that the app has set up.
    opentelemetry: bool = False
    #: Facts that wait beside the claims at most, until they are moved to the database.
    most_waiting: int = Field(default=MOST_WAITING, ge=1000)
    #: How long facts are kept before the analysis worker exports and deletes them; None: for ever.
    keep: Keep = None
    #: The folder that gets what is deleted.
    export: Path | None = None

    @model_validator(mode="after")
    def _deletes_what_may_go(self) -> FactSettings:
        if self.keep is not None and self.keep < _LEAST_KEPT:
            msg = (
                "keep is less than 32 days, and budgets of a month are added up from facts: keep"
                " them for 32 days at least, or for ever"
            )
            raise ValueError(msg)
        if self.keep is not None and self.export is None:
            msg = (
                "keep deletes old facts only once they are exported: name a folder in facts.export"
                " that outlives the machine, e.g. export: /var/lib/shop/facts"
            )
            raise ValueError(msg)
        return self


class MessageSettings(Section):
    """The bounds of one message; a larger one is a dead letter, unread."""

    #: Bytes of a compressed body, unpacked. RabbitMQ takes 16 MiB a message by default.
    most_unpacked: int = Field(default=16 * 2**20, ge=2**10)
    #: Values and keys of a body; 100 bytes each, roughly, once they are parsed.
    most_values: int = Field(default=200_000, ge=100)
    #: Lists and objects in one another.
    most_levels: int = Field(default=200, ge=10, le=500)

    @property
    def bounds(self) -> Bounds:
        """What a body may parse to."""
        return Bounds(nodes=self.most_values, depth=self.most_levels)


class PoisonWaveSettings(Section):
    """When a domain's events are held back instead of filling its dead-letter queue."""

    enabled: bool = True
    #: Share of the events that ended within `window` that would be dead letters.
    share: float = Field(default=0.8, gt=0, le=1)
    #: Events that must have ended within `window` before it is judged, over the whole fleet.
    least: int = Field(default=50, ge=1)
    window: Span = Field(default=timedelta(minutes=1), gt=timedelta(0))
    #: How long a domain is held back before one event is tried.
    hold: Span = Field(default=timedelta(minutes=1), gt=timedelta(0))


class BreakerSection(Section):
    """The settings of one breaker, or of all others as `default`; unset ones are as in D5."""

    window: Span | None = None
    min_calls: int | None = None
    failures_in_a_row: int | None = None
    failure_share: float | None = None
    slow_call: Span | None = None
    slow_share: float | None = None
    open_for: Span | None = None
    probes: int | None = None
    probe_lease: Span | None = None
    successes_to_close: int | None = None
    ramp_up: Span | None = None
    #: Whether queues are not consumed while it is open, if all their handlers name it or are held
    #: back for other reasons.
    pause_queues: bool | None = None

    def over(self, below: BreakerSettings) -> BreakerSettings:
        """*below* with the fields that are set here put over it."""
        return replace(below, **self.model_dump(exclude_none=True, exclude={"pause_queues"}))


class BudgetSection(Section):
    """The settings of one dependency's retry budget, or of all others' as `default` (spec D3)."""

    share: float | None = None
    least: int | None = None
    window: Span | None = None
    enabled: bool | None = None

    def over(self, below: BudgetSettings) -> BudgetSettings:
        """*below* with the fields that are set here put over it."""
        return replace(below, **self.model_dump(exclude_none=True))


class LimitSection(Section):
    """The settings of one limit; they win over the code's, field by field."""

    rate: float | None = None
    burst: float | None = None
    concurrency: int | None = None
    per: Per | None = None


class FlowSettings(Section):
    """Breakers, budgets and limits, and where the fleet shares them."""

    #: A Redis; by default the claim store, if that is one, else each process has its own.
    store: str | None = Field(default=None, repr=False)
    breakers: dict[str, BreakerSection] = Field(default_factory=dict)
    #: Of retries, by the breaker that stands for their dependency.
    budgets: dict[str, BudgetSection] = Field(default_factory=dict)
    limits: dict[str, LimitSection] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _flow_works(self) -> FlowSettings:
        said(lambda: [check_name(name) for name in self.breakers])
        said(self.named_breakers)
        said(lambda: [check_name(name) for name in self.budgets])
        said(self.named_budgets)
        said(lambda: [Limit(name, **said) for name, said in self.named_limits().items()])
        if self.store is not None and not self.store.startswith(("redis://", "rediss://")):
            msg = "store must be a Redis, redis://… or rediss://…"
            raise ValueError(msg)
        return self

    def pausing(self, name: str) -> bool:
        """True if breaker *name* pauses queues while it is open."""
        default = self.breakers.get("default", BreakerSection()).pause_queues
        own = self.breakers.get(name, BreakerSection()).pause_queues
        return bool(default if own is None else own)

    def default_breaker(self) -> BreakerSettings:
        """The settings of breakers that have none of their own."""
        given = self.breakers.get("default", BreakerSection())
        return given.over(BreakerSettings())

    def named_breakers(self) -> dict[str, BreakerSettings]:
        """The settings by name, put over the default."""
        default = self.default_breaker()
        return {
            name: section.over(default)
            for name, section in self.breakers.items()
            if name != "default"
        }

    def default_budget(self) -> BudgetSettings:
        """The settings of budgets that have none of their own."""
        return self.budgets.get("default", BudgetSection()).over(BudgetSettings())

    def named_budgets(self) -> dict[str, BudgetSettings]:
        """The settings by name, put over the default."""
        default = self.default_budget()
        return {
            name: section.over(default)
            for name, section in self.budgets.items()
            if name != "default"
        }

    def named_limits(self) -> dict[str, dict[str, Any]]:
        """The settings of limits, by name and field."""
        return {
            name: section.model_dump(exclude_none=True) for name, section in self.limits.items()
        }


class Route(Section):
    """A handler that the publishing process does not import, of an event type or a domain."""

    handler: str
    queue: str | None = None


def checked_routes(routes: dict[str, T]) -> dict[str, T]:
    """*routes* if each key is an event type or says all events of a domain."""
    for key in routes:
        if key.endswith(ALL):
            checked_domain(key.removesuffix(ALL))
        elif not key or "*" in key:
            msg = (
                f"{key!r} names neither an event type nor all events of a domain:"
                " write OrderPlaced or order/*"
            )
            raise ValueError(msg)
    return routes


class RetryRule(Section):
    """The policy of deliveries that meet all its conditions (spec D3)."""

    policy: str
    #: A handler's name, or a pattern with * and ?.
    handler: str | None = None
    operation: str | None = None
    #: An event type, or a pattern with * and ?.
    event_type: str | None = None
    tenant: str | None = None
    category: Category | None = None
    domain: str | None = None
    priority: Priority | None = None
    #: Holds while less than this is left until the message expires.
    time_left: Span | None = Field(default=None, gt=timedelta(0))


class RetrySettings(Section):
    """Named backoff policies, and which deliveries get which (spec D3)."""

    #: Where no rule says another.
    default: str = "default"
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rules: tuple[RetryRule, ...] = ()

    @field_validator("policies")
    @classmethod
    def _check_policies(cls, policies: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        said(lambda: policies_from(policies))
        return policies

    def policy_rules(self) -> PolicyRules:
        """The rules with the policies that they name; raises ConfigurationError."""
        rules = [rule.model_dump() for rule in self.rules]
        return policy_rules(policies_from(self.policies), self.default, rules)


class OrderingSettings(Section):
    """Lanes of ordered handlers and checkpoints of projections (spec P2, P3)."""

    #: A database; by default that of the event books, else the claim store if it is a PostgreSQL.
    url: DatabaseUrl | None = Field(default=None, repr=False)
    #: Migrate the tables of ordering automatically.
    migrate: bool = True
    #: Events that are parked in one lane at most; what comes beyond is postponed, never lost.
    most_parked: int = Field(default=10_000, ge=1)
    #: How long events wait behind a missing one before it is reported.
    gap_after: Span = Field(default=timedelta(minutes=5), gt=timedelta(0))
