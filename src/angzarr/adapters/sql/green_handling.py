"""Events handled in the transaction of a batch, and what is wrong with one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, Transaction

from angzarr.adapters.sql import green_saying
from angzarr.adapters.sql.green_trouble import is_trouble
from angzarr.aggregates.book import Address
from angzarr.events.event import Event
from angzarr.projections.green import Broken, Plan, TransactionEnded
from angzarr.projections.rebuild_reading import head_of

#: Handles an event by what it writes to a connection.
Work: TypeAlias = Callable[[Event, Any], object]


class Undone(Exception):
    """Rolls a batch back; says why."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken)
        self.broken = broken


def handled(
    events: Sequence[Event],
    known: dict[Address, int],
    work: Work,
    plan: Plan,
    amid: tuple[Connection, Transaction],
) -> Iterator[Event]:
    """Do *work* for *events* that are not before their places, and yield each.

    *known* is moved along. Raises Undone, and TransactionEnded where *work* ended the transaction
    that it is *amid*.
    """
    connection, begun = amid
    for index, event in enumerate(events):
        address, sequence = head_of(event)
        if sequence < known.get(address, plan.first):
            continue
        try:
            work(event, connection)
        except Exception as error:
            if is_trouble(error):
                raise
            raise Undone(Broken(index, error)) from error
        finally:
            if not (begun.is_active or connection.invalidated):
                raise TransactionEnded(green_saying.ended(plan, event))
        known[address] = sequence + 1
        yield event
