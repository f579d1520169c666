"""What the dashboard asks about facts: each question names the database if it is away.

The page of an entry shows the runs of its event, but never waits long for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.group_costs import GroupCosts, costs_of_group, group_costs_text
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.clock import Clock
from angzarr.dashboard.paging import no_cursor
from angzarr.dashboard.problem import asking, away, not_found
from angzarr.errors import AngzarrError, ConfigurationError, StoreUnavailable, Unavailable
from angzarr.facts.cost_budget import CostBudget
from angzarr.facts.cost_budget_use import CostBudgetUse, uses_of
from angzarr.facts.fact import Fact
from angzarr.facts.fact_json import FactDetail, detail_of, links_of
from angzarr.facts.query import (
    CostSum,
    FactCount,
    FactField,
    FactOrder,
    FactPage,
    FactQuery,
    FactReader,
    FactStore,
)

#: What people call it where it does not answer.
FACTS: Final = "the database of facts"
#: How long a database that was away is not asked again for the page of an entry.
AWAY: Final = timedelta(seconds=15)
#: Runs of one entry that its page shows: the last ones.
MOST_RUNS: Final = 100


class FactsFound(NamedTuple):
    """A page of facts, and the facts that resolved errors among them, by the errors' ids."""

    page: FactPage
    links: Mapping[str, Fact]


class RunsFound(NamedTuple):
    """The runs of an entry's event by its handler, or a sentence that says why there are none."""

    facts: tuple[Fact, ...] = ()
    more: bool = False
    problem: str = ""


_AWAY: Final = RunsFound(problem="The database of facts is away, so the attempts are not known.")


#: Who is about to replay a group is not to take what is unknown for nothing.
COSTS_UNKNOWN: Final = (
    "What the events of its entries have cost is not known: the database of facts is away."
)


class FactsAway:
    """Remembers for a while that a database was away; safe to use from threads."""

    def __init__(self) -> None:
        self._until: datetime | None = None
        self._lock = threading.Lock()

    def begin(self, now: datetime) -> None:
        """Note that it is away."""
        with self._lock:
            self._until = now + AWAY

    def holds(self, now: datetime) -> bool:
        """True if it was away a short time ago."""
        with self._lock:
            return self._until is not None and now < self._until


@dataclass(frozen=True, slots=True, kw_only=True)
class FactServices:
    """Questions about facts; all but `runs_of` raise Problem or ConfigurationError."""

    #: Raises ConfigurationError where no database keeps facts.
    store: Callable[[], FactStore]
    #: The same with short time limits.
    hasty: Callable[[], FactReader]
    clock: Clock
    #: What people and handlers may spend.
    budgets: Sequence[CostBudget] = ()
    _away: FactsAway = field(default_factory=FactsAway)

    def page(self, wanted: FactQuery, *, order: FactOrder, limit: int, after: str) -> FactsFound:
        """A page of facts."""
        store = self.store()
        with asking(FACTS):
            try:
                page = store.find(wanted, order=order, limit=limit, after=after)
            except ValueError:
                raise no_cursor() from None
            return FactsFound(page, links_of(store, page.facts))

    def detail(self, fact_id: str) -> FactDetail:
        """A fact, and all about it."""
        store = self.store()
        with asking(FACTS):
            fact = store.get(fact_id)
            if fact is None:
                raise not_found("fact")
            return detail_of(store, fact)

    def stats(self, wanted: FactQuery, by: list[FactField], *, limit: int) -> list[FactCount]:
        """The numbers of facts, most first."""
        store = self.store()
        with asking(FACTS):
            return list(store.stats(wanted, by, limit=limit))

    def costs(self, wanted: FactQuery, by: list[FactField], *, limit: int) -> list[CostSum]:
        """The sums of costs, the largest of each currency first."""
        store = self.store()
        with asking(FACTS):
            return list(store.costs(wanted, by, limit=limit))

    def budget_uses(self) -> list[CostBudgetUse]:
        """How each budget of costs stands now; asks nothing where none is set."""
        if not self.budgets:
            return []
        store = self.store()
        with asking(FACTS):
            return uses_of(store, self.budgets, self.clock.now())

    def costs_of_group(self, ledger: Ledger, fingerprint: str) -> GroupCosts:
        """What the events of a group have cost."""
        store = self.store()
        with asking(FACTS):
            return costs_of_group(ledger, store, fingerprint)

    def costs_said(self, ledger: Ledger, fingerprint: str) -> str:
        """A sentence about the costs of a group; empty: there are none. It never waits long."""
        now = self.clock.now()
        if self._away.holds(now):
            return COSTS_UNKNOWN
        try:
            return group_costs_text(costs_of_group(ledger, self.hasty(), fingerprint))
        except ConfigurationError:
            return ""
        except StoreUnavailable as error:
            self._away.begin(now)
            away(error, FACTS)  # says why in the log
            return COSTS_UNKNOWN

    def add(self, fact: Fact) -> Fact | None:
        """Add *fact*, or return the one that has its id."""
        store = self.store()
        with asking(FACTS):
            return store.add(fact)

    def runs_of(self, entry: Entry) -> RunsFound:
        """The runs of the event of *entry* by its handler; raises nothing."""
        if not entry.event_id:
            return RunsFound(problem="The event has no id, so its attempts are not known.")
        now = self.clock.now()
        if self._away.holds(now):
            return _AWAY
        try:
            page = self.hasty().history(entry.event_id, entry.handler_name or None, limit=MOST_RUNS)
        except ConfigurationError as error:
            return RunsFound(problem=f"Attempts are not known: {error}.")
        except AngzarrError as error:
            self._away.begin(now)
            if isinstance(error, Unavailable):
                away(error, FACTS)  # says why in the log
            return _AWAY
        return RunsFound(page.facts, page.more)
