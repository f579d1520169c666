"""angzarr projection begin: a handler that is newly ordered leaves what was before (spec P3)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import click

from angzarr.aggregates.book import Address
from angzarr.aggregates.event_store import EventStore, Head
from angzarr.cli.analyze import person
from angzarr.cli.application import load_application
from angzarr.cli.entry_choice import JSON, YES
from angzarr.cli.entry_json import print_json
from angzarr.cli.projection_choice import find, opened, opened_books
from angzarr.ordering.lanes import Lanes
from angzarr.printable import printable
from angzarr.projections.ordered_handler import Ordered

_log: Final = logging.getLogger("angzarr.projections")

#: Books whose lanes are looked at at once, as many as `Lanes.places` takes.
_PAGE: Final = 1_000


@click.command()
@click.argument("name")
@click.option("--at-present", is_flag=True, required=True, help="Behind all that is in the books.")
@YES
@JSON
@click.pass_obj
def begin(app_name: str | None, /, name: str, *, yes: bool, as_json: bool, **_said: bool) -> None:
    """Let NAME begin behind what has happened.

    Each aggregate of which it has handled nothing begins at the end of its event book: what is
    there is not handled, nor sent again. The others stay where they are, so it may be run again.
    """
    app = load_application(app_name)
    one = find(app, name)
    with opened(app) as stores, opened_books(app) as books:
        if books is None:
            msg = "there are no event books (`books`), so nobody knows what has happened"
            raise click.ClickException(msg)
        if not yes:
            lanes, events = _count(one, stores.lanes, books)
            what = (
                f"{one.name} begins behind {events:,} events of {lanes:,} aggregates, none of which"
                " it will handle. Go on?"
            )
            click.confirm(printable(what), abort=True, err=True)
        moved, passed = 0, 0
        for address, place, end in _new(one, stores.lanes, books):
            if stores.lanes.skip_to(one.lane(address), end).next_sequence == end:
                moved, passed = moved + 1, passed + end - place
    _log.warning(
        "lanes_begun: %s begins behind %d events of %d aggregates, by %s",
        one.name, passed, moved, person(),
    )  # fmt: skip
    if as_json:
        print_json({"name": one.name, "aggregates": moved, "events": passed})
    else:
        click.echo(f"{one.name} begins behind {passed:,} events of {moved:,} aggregates")


def _count(one: Ordered, lanes: Lanes, books: EventStore) -> tuple[int, int]:
    spans = [end - place for _, place, end in _new(one, lanes, books)]
    return len(spans), sum(spans)


def _new(one: Ordered, lanes: Lanes, books: EventStore) -> Iterator[tuple[Address, int, int]]:
    """Yield aggregates that nobody has moved: where they begin, and where their books end."""
    first = one.order.first
    for page in _pages(one, books):
        known = lanes.places(one.task, [head.address for head in page])
        for address, end in page:
            if address not in known and end > first:
                yield address, first, end


def _pages(one: Ordered, books: EventStore) -> Iterator[list[Head]]:
    after: Address | None = None
    while page := list(books.heads(sorted(one.order.domains), after, _PAGE)):
        yield page
        after = page[-1].address
