"""Costs of deliveries: each is a fact as soon as it is said, so that no crash forgets it (spec F2).

Budgets are asked before a handler is called, where some are set. What was spent is read from the
facts, at most `FRESH` ago, plus what this process has spent since. While it cannot be read, the
last known sum counts: a budget never costs an event because a database is away.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from angzarr.clock import Clock
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.delivery_facts import trace_of
from angzarr.errors import Unavailable
from angzarr.facts.cost import Spending, exact_sum
from angzarr.facts.cost_budget import BudgetScope, CostBudget, scopes_of
from angzarr.facts.fact import Cost, Fact, FactLog
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.delivery")

#: How old a sum may be by which a budget is judged.
FRESH: Final = timedelta(seconds=5)
#: Sums that are kept; one for each tenant of a budget that each has.
MOST_SUMS: Final = 10_000


@dataclass(slots=True)
class _Sum:
    """What was spent in a scope: as read at `read_at`, and by this process since."""

    read: Decimal = Decimal(0)
    read_at: datetime | None = None
    since: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBudgets:
    """The budgets of this process. *spent* reads a sum; safe to use from threads."""

    budgets: Sequence[CostBudget]
    spent: Callable[[BudgetScope], Decimal]
    clock: Clock
    _sums: dict[BudgetScope, _Sum] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _seldom: LogThrottle = field(default_factory=LogThrottle, init=False)

    def check(self, delivery: Delivery) -> None:
        """Raise CostBudgetSpentError where a budget of *delivery* is spent."""
        now = self.clock.now()
        for budget, scope in scopes_of(
            self.budgets, delivery.event.tenant_id, delivery.handler, now
        ):
            budget.check(scope, self._known(scope, now))

    def add(self, delivery: Delivery, cost: Cost) -> None:
        """Count *cost* at once, before the facts are read again."""
        now = self.clock.now()
        for _budget, scope in scopes_of(
            self.budgets, delivery.event.tenant_id, delivery.handler, now
        ):
            if scope.currency == cost.currency:
                with self._lock:
                    known = self._sum(scope)
                    known.since = exact_sum(known.since, cost.amount)

    def _known(self, scope: BudgetScope, now: datetime) -> Decimal:
        with self._lock:
            known = self._sum(scope)
            fresh = known.read_at is not None and now - known.read_at < FRESH
            before = known.since
            if not fresh:
                known.read_at = now  # the next ones do not wait for the answer
        if not fresh:
            self._read(scope, known, before)
        return exact_sum(known.read, known.since)

    def _read(self, scope: BudgetScope, known: _Sum, before: Decimal) -> None:
        """Read what was spent; what this process had spent *before* is, or will be, part of that.

        Facts may be on their way still: a sum never falls.
        """
        try:
            read = self.spent(scope)
        except Unavailable as error:
            if self._seldom.now():
                _log.warning("cost_budget_unread: the last known sum counts: %s", error)
            return
        with self._lock:
            known.read = max(read, exact_sum(known.read, before))
            known.since = exact_sum(known.since, -before)

    def _sum(self, scope: BudgetScope) -> _Sum:
        if (known := self._sums.get(scope)) is None:
            while len(self._sums) >= MOST_SUMS:
                self._sums.pop(next(iter(self._sums)))
            known = self._sums[scope] = _Sum()
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRecorder:
    """Writes costs down. Built once a process; safe to use from many threads."""

    facts: FactLog
    clock: Clock
    budgets: CostBudgets | None = None
    close_reader: Callable[[], object] = lambda: None

    @property
    def is_bounded(self) -> bool:
        """Whether there are budgets at all."""
        return self.budgets is not None

    def check(self, delivery: Delivery) -> None:
        """Raise CostBudgetSpentError where a budget of *delivery* is spent."""
        if self.budgets is not None:
            self.budgets.check(delivery)

    def add(self, delivery: Delivery, number: int, spending: Spending) -> None:
        """Append the fact of *spending*, which is the *number*-th of this run of its handler."""
        self.facts.append([_fact(delivery, number, spending, self.clock.now())])
        if self.budgets is not None:
            self.budgets.add(delivery, spending.cost)

    def close(self) -> None:
        """Close what reads the sums; the log of facts is its owner's to close."""
        self.close_reader()


def _fact(delivery: Delivery, number: int, spending: Spending, at: datetime) -> Fact:
    event = delivery.event
    return Fact(
        id=f"{delivery.token}:cost:{number}",
        type="cost",
        subtype="tool_usage",
        at=at,
        tenant_id=event.tenant_id,
        entity_id=event.root,
        tool_id=delivery.handler,
        event_id=event.id,
        trace_id=trace_of(event),
        asset_id=spending.asset_id or delivery.asset_id,
        config_id=spending.config_id,
        config_version=spending.config_version,
        cost=spending.cost,
        data={
            "event_type": event.type,
            "correlation_id": event.correlation_id,
            "retry_attempt": delivery.attempt,
            "replay": delivery.position.replay,
            **({"operation": spending.operation} if spending.operation else {}),
            **({"units": dict(spending.units)} if spending.units else {}),
        },
    )
