"""angzarr projection skip: gives up on events that will not come (spec P3)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

import click

from angzarr.aggregates.book import Address, EventStore, Head
from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON, YES
from angzarr.cli.projection.selection import (
    Place,
    check_domain_of,
    find,
    opened,
    opened_books,
)
from angzarr.cli.projection.skip_rules import Passing, over_gap, up_to
from angzarr.cli.standard_output import print_json
from angzarr.ordering.lane import Place as LanePlace
from angzarr.ordering.lane_view import LaneView, lane_at
from angzarr.projections.ordered_handler import Ordered
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person

_log: Final = logging.getLogger("angzarr.projections")

#: More than a lane may hold by any sensible setting.
_ALL: Final = 1_000_000
#: Events of a book that are looked at before a skip.
_PAGE: Final = 1_000


@click.command()
@click.argument("name")
@click.argument("place", type=Place(), metavar="DOMAIN/ROOT[@EDITION]")
@click.option("--to", "sequence", type=click.IntRange(1), help="The sequence to go on with.")
@click.option("--gap", is_flag=True, help="Or: the first event that waits behind the gap.")
@YES
@JSON
@click.pass_obj
def skip(
    app_name: str | None, /, name: str, place: Address, *, yes: bool, as_json: bool, **to: Any
) -> None:
    """Give up on events that NAME misses.

    They are those of one aggregate, and are not handled if they come later. A dead letter is
    skipped with `angzarr dlq skip` instead.
    """
    if (to["sequence"] is None) == (not to["gap"]):
        raise click.UsageError("say how far: either --to SEQUENCE or --gap")
    app = load_application(app_name)
    one = find(app, name)
    check_domain_of(one, place)
    with opened(app) as stores, opened_books(app) as books:
        passing = _chosen(one, lane_at(stores.lanes, one.lane(place), _ALL), books, to["sequence"])
        if not yes:
            what = f"{one.name} gives up on {passing}: it will never be handled. Skip it?"
            click.confirm(printable(what), abort=True, err=True)
        now_at = stores.lanes.skip_to(one.lane(place), passing.to)
    _log.warning("lane_skipped: %s gave up on %s, by %s", one.name, passing, person())
    _tell(passing, now_at, as_json=as_json)


def _chosen(
    one: Ordered, view: LaneView, books: EventStore | None, sequence: int | None
) -> Passing:
    if sequence is None:
        passing = over_gap(one, view)
    else:
        in_book = books is not None and _has(books, view.address, sequence - 1)
        passing = up_to(one, view, sequence, in_book=in_book)
    return passing if books is None else replace(passing, in_book=_missing_in(books, passing))


def _has(books: EventStore, address: Address, sequence: int) -> bool:
    """Tell whether the book at *address* has an event *sequence*."""
    return bool(books.pending([Head(address, sequence)]))


def _missing_in(books: EventStore, passing: Passing) -> int:
    """Count the events in the book that the lane knows nothing of and passes, up to a page."""
    address, first = passing.view.address, passing.view.next_sequence
    there = books.scan([address.domain], Head(address, first), min(passing.to - first, _PAGE))
    known = {waiting.sequence for waiting in passing.known}
    mine = [one for one in there if (one.root, one.edition or "") == address[1:]]
    return sum((one.sequence or 0) < passing.to and one.sequence not in known for one in mine)


def _tell(passing: Passing, now_at: LanePlace, *, as_json: bool) -> None:
    if as_json:
        told = {
            **passing.view.address._asdict(),
            "from": passing.view.next_sequence,
            "missing": passing.missing,
            "passed": [waiting.sequence for waiting in passing.known],
            **now_at._asdict(),
        }
        print_json(told)
    else:
        click.echo(printable(f"skipped {passing}; it goes on with #{now_at.next_sequence}"))
