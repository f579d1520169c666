"""angzarr projection: what takes events in order, how far it is, and what holds it up (spec P4)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click

from angzarr.aggregates.book import Address, EventStore, Head
from angzarr.cli.application import load_application
from angzarr.cli.projection.rebuild import rebuild
from angzarr.cli.projection.skip import begin, reset, skip
from angzarr.cli.projection.view import (
    AggregateParam,
    check_domain_of,
    find,
    opened_books,
    opened_lanes,
    print_facts,
    print_lag,
    print_lane,
    print_list,
    print_waiting,
)
from angzarr.cli.terminal import JSON, print_json
from angzarr.errors import StoreUnavailable, text_of
from angzarr.ordering.lane_view import lane_at, views
from angzarr.projections import ordered_handler as ordered_json
from angzarr.projections.checkpoint import Lag, OrderingStores, lag_of
from angzarr.projections.ordered_handler import HandlerRow, OrderedHandler, row_of
from angzarr.runtime.text import printable
from angzarr.wiring.dashboard import ordered

#: Events that `show` tells of: by itself, and at most (`Lanes.places` takes no more lanes).
_SHOWN: Final = 100
_MOST_SHOWN: Final = 1_000


@click.group()
def projection() -> None:
    """OrderedHandler handlers: how far they are, and what holds them up."""


@projection.command("list")
@click.option("--quick", is_flag=True, help="Without the lag, which asks for every event book.")
@JSON
@click.pass_obj
def list_(app_name: str | None, *, quick: bool, as_json: bool) -> None:
    """List what takes events in order, and how it does."""
    ops = load_application(app_name)
    known, rows, away = ordered(ops), [], ""
    if known:
        with opened_lanes(ops) as stores, opened_books(ops) as books:
            rows = [_row(one, stores) for one in known]
            if not quick:
                rows, away = _with_lags(rows, stores, books)
    if as_json:
        print_json([ordered_json.row_json(row) for row in rows])
    else:
        print_list(rows)
    if away:
        msg = f"how far they are behind cannot be read: {away}"
        raise click.ClickException(msg)


@projection.command()
@click.argument("name")
@click.option("--type", "types", multiple=True, help="Only events of this type; may be repeated.")
@JSON
@click.pass_obj
def lag(app_name: str | None, name: str, *, types: tuple[str, ...], as_json: bool) -> None:
    """Tell how far NAME is behind.

    Events and time by the event books, in all and by type.
    """
    ops = load_application(app_name)
    one = find(ops, name)
    with opened_lanes(ops) as stores, opened_books(ops) as books:
        found = _lag(one, stores, books, types)
    _check_types(one, found, types)
    if as_json:
        print_json(ordered_json.lag_json(found))
    else:
        print_lag(found)


@projection.command()
@click.argument("name")
@click.argument("place", type=AggregateParam(), required=False, metavar="[DOMAIN/ROOT[@EDITION]]")
@click.option("--limit", type=click.IntRange(1, _MOST_SHOWN), default=_SHOWN, show_default=True)
@JSON
@click.pass_obj
def show(
    app_name: str | None, name: str, place: Address | None, *, limit: int, as_json: bool
) -> None:
    """Show what NAME did, and what waits.

    In all of its lanes or in that of one aggregate: in which order, why, and what helps.
    """
    ops = load_application(app_name)
    one = find(ops, name)
    with opened_lanes(ops) as stores, opened_books(ops) as books:
        if place is not None:
            _show_lane(one, stores, books, check_domain_of(one, place), limit, as_json=as_json)
        else:
            _show_all(one, stores, limit, as_json=as_json)


projection.add_command(begin)
projection.add_command(rebuild)
projection.add_command(reset)
projection.add_command(skip)


def _row(one: OrderedHandler, stores: OrderingStores, lag: Lag | None = None) -> HandlerRow:
    return row_of(one, stores.lanes, stores.checkpoints, lag)


def _lag(
    one: OrderedHandler,
    stores: OrderingStores,
    books: EventStore | None,
    types: tuple[str, ...] = (),
) -> Lag:
    return lag_of(
        one.task,
        one.order,
        store=books,
        lanes=stores.lanes,
        now=datetime.now(UTC),
        types=types,
    )


def _with_lags(
    rows: list[HandlerRow], stores: OrderingStores, books: EventStore | None
) -> tuple[list[HandlerRow], str]:
    """*rows* with how far each is behind; without, and why, while books are away."""
    try:
        return [one._replace(lag=_lag(one.one, stores, books)) for one in rows], ""
    except StoreUnavailable as away:
        return rows, text_of(away)


def _check_types(one: OrderedHandler, found: Lag, types: tuple[str, ...]) -> None:
    """Refuse an unknown event type: 0 would look like good news."""
    known = one.order.types | {pending.type for pending in found.by_type}
    for unknown in sorted(set(types) - known):
        listed = ", ".join(sorted(one.order.types))
        msg = f"{one.name} takes no {unknown}, and is behind none; it takes: {listed}"
        raise click.ClickException(printable(msg))


def _show_all(one: OrderedHandler, stores: OrderingStores, limit: int, *, as_json: bool) -> None:
    row, by_type = _row(one, stores), stores.checkpoints.by_type(one.task)
    found = stores.lanes.waiting(one.task, limit=limit + 1)
    shown = found[:limit]
    addresses = list(dict.fromkeys(waiting.lane.address for waiting in shown))
    places = stores.lanes.places(one.task, addresses)
    lanes = views(shown, places, one.order.first)
    more = len(found) > limit
    if as_json:
        print_json(ordered_json.story_json(row, by_type, lanes, more=more))
        return
    print_facts(row, by_type)
    print_waiting(one, lanes, datetime.now(UTC))
    if more:
        click.echo("more waits: pass --limit, or name an aggregate")


def _show_lane(
    one: OrderedHandler,
    stores: OrderingStores,
    books: EventStore | None,
    place: Address,
    limit: int,
    *,
    as_json: bool,
) -> None:
    view = lane_at(stores.lanes, one.lane(place), limit)
    pending = books.pending([Head(place, view.next_sequence)]) if books is not None else ()
    if as_json:
        print_json(ordered_json.lane_json(one, view, pending))
        return
    print_lane(one, view, pending)
    if not (view.waiting or pending or _is_known(one, stores, books, place)):
        book = ", and it has no event book" if books is not None else ""
        unknown = f"unknown aggregate {place}: {one.name} has handled none of its events{book}"
        click.echo(printable(unknown))
        return
    print_waiting(one, [view] if view.waiting else [], datetime.now(UTC))


def _is_known(
    one: OrderedHandler, stores: OrderingStores, books: EventStore | None, place: Address
) -> bool:
    if stores.lanes.places(one.task, [place]):
        return True
    return books is not None and bool(books.pending([Head(place, 0)]))
