"""What the failures of a group have cost so far: shown before a replay spends more (spec F2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.facts.query import CostSum, FactQuery, FactReader

#: Entries whose costs are added up: those that failed last.
MOST_ENTRIES: Final = LONGEST_PAGE


class GroupCosts(NamedTuple):
    """The costs of the events of a group, in its handler, by currency; `more`: of the last only."""

    sums: Sequence[CostSum] = ()
    entries: int = 0
    more: bool = False


def costs_of_group(ledger: Ledger, reader: FactReader, fingerprint: str) -> GroupCosts:
    """The costs of all runs of the events of a group; raises Unavailable.

    They are of the handler that failed: what other handlers of the same events spent is theirs.
    """
    page = ledger.get_failed_events(
        EntryFilter(fingerprint=fingerprint), status=None, limit=MOST_ENTRIES
    )
    events = {one.event_id for one in page.entries if one.event_id}
    handlers = {one.handler_name for one in page.entries}
    if not events:
        return GroupCosts(entries=len(page.entries), more=bool(page.next))
    wanted = FactQuery(
        type="cost",
        tool_id=handlers.pop() if len(handlers) == 1 else None,
        event_ids=tuple(sorted(events)),
    )
    return GroupCosts(reader.costs(wanted, ()), len(page.entries), bool(page.next))


def group_costs_text(costs: GroupCosts) -> str:
    """A sentence for people; empty: nothing was spent."""
    if not costs.sums:
        return ""
    told = ", ".join(
        f"{one.amount:f} {one.currency} ({one.failed:f} in runs that failed)" for one in costs.sums
    )
    of = f"the last {costs.entries:,} of its entries" if costs.more else "its entries"
    return f"The events of {of} have cost {told} so far."
