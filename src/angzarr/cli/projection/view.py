"""OrderedHandler handlers for people, and which handler and lanes a command is about.

Text that came from outside is shown, never obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, Final

import click
from rich.table import Table

from angzarr.aggregates.book import Address, EventStore, Pending, check_address
from angzarr.cli.terminal import console, moment, pairs, safe
from angzarr.errors import ConfigurationError, InvalidDomainName, InvalidRoot
from angzarr.ordering.lane import Waiting, Why
from angzarr.ordering.lane_view import LaneState, LaneView
from angzarr.projections.checkpoint import Checkpoint, Lag, OrderingStores
from angzarr.projections.ordered_handler import HandlerRow, OrderedHandler, what_helps
from angzarr.runtime.text import ago, printable, span_text
from angzarr.wiring.dashboard import ordered
from angzarr.wiring.event_store import open_event_store, open_ordering
from angzarr.wiring.operations import Operations

_COLOURS: Final = {
    LaneState.BLOCKED: "bold red",
    LaneState.GAP: "red",
    LaneState.RETRYING: "yellow",
    LaneState.READY: "green",
}
_LIST: Final = (
    "name", "kind", "domains", "lanes", "processed", "last processed", "parked", "blocked", "lag",
)  # fmt: skip


def print_list(rows: Sequence[HandlerRow]) -> None:
    """Print a table with one row a handler."""
    out = console()
    if not rows:
        out.print("this app has no projection, and no handler that takes events in order")
        return
    table = Table()
    for name in _LIST:
        table.add_column(name, no_wrap=name in ("name", "last processed"))
    for one, summary, checkpoint, lag in rows:
        table.add_row(
            safe(one.name), one.kind, safe(", ".join(sorted(one.order.domains))),
            str(summary.lanes), str(checkpoint.events_processed if checkpoint else 0),
            safe(moment(checkpoint.last_processed_at) if checkpoint else "never"),
            safe(summary.parked, "yellow" if summary.parked else ""),
            safe(summary.blocked, "bold red" if summary.blocked else ""),
            safe("" if lag is None else brief(lag)),
        )  # fmt: skip
    out.print(table)


def brief(lag: Lag) -> str:
    """The lag of a handler in a few words."""
    since = f", {span_text(lag.time_behind)}" if lag.time_behind is not None else ""
    return f"{_events(lag)}{since}"


def _events(lag: Lag) -> str:
    return f"at least {lag.events_behind}" if lag.without_books else str(lag.events_behind)


def _aggregates(lag: Lag) -> str:
    """The number of aggregates that are behind: those without a book are not counted."""
    if not lag.without_books:
        return str(lag.lanes_behind)
    return f"{lag.lanes_behind}, and those without an event book"


def print_lag(lag: Lag) -> None:
    """Print how far a handler is behind, by type."""
    out = console()
    if lag.by_type:
        table = Table("event type", "events behind", "oldest", "occurred")
        for kind, events, oldest in lag.by_type:
            table.add_row(safe(kind), str(events), ago(oldest, lag.at), moment(oldest))
        out.print(table)
    behind = lag.time_behind
    told = {
        "events behind": _events(lag),
        "time behind": span_text(behind) if behind is not None else "",
    }
    if lag.waits is not None:  # of all types
        told |= {
            "aggregates behind": _aggregates(lag),
            "parked": str(lag.waits.parked),
            "blocked": str(lag.waits.blocked),
        }
    out.print(pairs(told))
    if lag.without_books:
        out.print(safe(without_books(lag)))


def without_books(lag: Lag) -> str:
    """The domains whose events could not be counted, and why."""
    listed = ", ".join(sorted(lag.without_books))
    return f"there is no event book of {listed}: of its events only those are known that wait here"


def print_facts(row: HandlerRow, by_type: Mapping[str, Checkpoint]) -> None:
    """Print what a handler has processed, in all and by type."""
    out, (one, summary, checkpoint, _) = console(), row
    out.print(
        pairs(
            {
                "name": one.name,
                "kind": one.kind,
                "task": one.task,
                "domains": ", ".join(sorted(one.order.domains)),
                "event types": ", ".join(sorted(one.order.types)),
                "first sequence": one.order.first,
                "lanes": summary.lanes,
                "parked": summary.parked,
                "blocked": summary.blocked,
                "waits since": moment(summary.oldest),
                **_processed(checkpoint),
            }
        )
    )
    if by_type:
        table = Table("event type", "processed", "last processed", "last event")
        for kind, last in sorted(by_type.items()):
            table.add_row(
                safe(kind), str(last.events_processed), moment(last.last_processed_at),
                safe(last.last_event_id),
            )  # fmt: skip
        out.print(table)


def _processed(checkpoint: Checkpoint | None) -> dict[str, object]:
    if checkpoint is None:
        return {"processed": 0}
    return {
        "processed": checkpoint.events_processed,
        "last processed": moment(checkpoint.last_processed_at),
        "last event": f"{checkpoint.last_event_id} ({checkpoint.last_event_type})",
    }


def print_lane(one: OrderedHandler, view: LaneView, pending: Sequence[Pending]) -> None:
    """Print where one lane is, and what its book has more."""
    console().print(
        pairs(
            {
                "name": one.name,
                "aggregate": str(view.address),
                "next sequence": view.next_sequence,
                "state": view.state if view.waiting else "",
                "still to come": ", ".join(f"{events} {kind}" for kind, events, _ in pending),
            }
        )
    )


def print_waiting(one: OrderedHandler, lanes: Iterable[LaneView], now: datetime) -> None:
    """Print what waits in *lanes*, in which order and why, then what helps."""
    out, helps = console(), []
    table = Table("aggregate", "#", "event", "why", "since", "details")
    for view in lanes:
        table.add_row(*map(safe, _head(view)), style=_COLOURS.get(view.state, ""))
        for waiting in view.waiting:
            table.add_row("", *map(safe, _cells(waiting, now)))
        helps += [(view, command) for command in what_helps(one, view)]
    if not table.row_count:
        out.print("nothing waits")
        return
    out.print(table)
    for view, command in helps:
        out.print(safe(f"{view.address}: {command}"), soft_wrap=True)


def _head(view: LaneView) -> tuple[str, ...]:
    if view.state is LaneState.GAP:
        return (str(view.address), f"{view.next_sequence}", "missing", LaneState.GAP, "", "")
    return (str(view.address), "", "", view.state, "", "")


def _cells(waiting: Waiting, now: datetime) -> tuple[object, ...]:
    details = {
        Why.EARLY: "",
        Why.RETRYING: f"due {moment(waiting.due_at)}",
        Why.DEAD_LETTER: f"letter {waiting.letter_id}",
    }
    return (
        waiting.sequence, f"{waiting.event_type} {waiting.event_id}", _words(waiting.why),
        ago(waiting.since, now), details[waiting.why],
    )  # fmt: skip


def _words(why: Why) -> str:
    return {Why.EARLY: "parked", Why.RETRYING: "retrying", Why.DEAD_LETTER: "dead letter"}[why]


def find(ops: Operations, name: str) -> OrderedHandler:
    """The one that is called *name*, or has it as task name; refuses an unknown name."""
    known = ordered(ops)
    for one in known:
        if name in (one.name, one.task):
            return one
    there = ", ".join(one.name for one in known) or "none"
    msg = f"nothing that takes events in order is called {name!r}; there are: {there}"
    raise click.ClickException(printable(msg))


@contextmanager
def opened_lanes(ops: Operations) -> Iterator[OrderingStores]:
    """Open lanes and checkpoints of the app for a block; raises ConfigurationError."""
    with closing(open_ordering(ops.settings, ops.broker_url)) as stores:
        yield stores


@contextmanager
def opened_books(ops: Operations) -> Iterator[EventStore | None]:
    """Open what reads the event books of the app for a block; None: it keeps none."""
    try:
        store = open_event_store(ops.settings, ops.broker_url)
    except ConfigurationError:
        yield None
        return
    with closing(store):
        yield store


class AggregateParam(click.ParamType[Address]):
    """An aggregate: DOMAIN/ROOT[@EDITION]; the last @ begins the edition, which may be empty."""

    name = "aggregate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """The address that *value* names."""
        domain, _, rest = str(value).partition("/")
        root, at, edition = rest.rpartition("@")
        if not at:
            root, edition = rest, ""
        try:
            return check_address(Address(domain, root, edition))
        except (InvalidDomainName, InvalidRoot) as error:
            self.fail(f"{value!r} is not a DOMAIN/ROOT[@EDITION]: {error}", param, ctx)


def check_domain_of(one: OrderedHandler, address: Address) -> Address:
    """The given *address* if *one* takes events of its domain, else refuse it."""
    if address.domain not in one.order.domains:
        listed = ", ".join(sorted(one.order.domains))
        msg = f"{one.name} takes the events of {listed}, not of {address.domain}"
        raise click.ClickException(msg)
    return address
