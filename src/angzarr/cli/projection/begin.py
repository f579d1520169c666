"""angzarr projection begin: a handler that is newly ordered leaves what was before (spec P3)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

import click

from angzarr.aggregates.book import Address, EventStore, Head
from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON, YES
from angzarr.cli.projection.selection import find, opened, opened_books
from angzarr.cli.standard_output import print_json
from angzarr.projections.checkpoint import OrderingStores
from angzarr.projections.ordered_handler import Ordered
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person

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
    there is not handled, nor sent again. The others stay where they are. Before NAME has handled
    anything it may be run again, for what has come since.
    """
    app = load_application(app_name)
    one = find(app, name)
    with opened(app) as stores, opened_books(app) as books:
        if books is None:
            msg = "there are no event books (`books`), so the past events are not known"
            raise click.ClickException(msg)
        new = partial(_new, one, stores, books)
        if not yes:
            spans = [end - place for _, place, end in new()]
            what = (
                f"{one.name} begins behind {sum(spans):,} events of {len(spans):,} aggregates, none"
                " of which it will handle. Go on?"
            )
            click.confirm(printable(what), abort=True, err=True)
        moved, passed = 0, 0
        for address, place, end in new():
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


def _new(
    one: Ordered, stores: OrderingStores, books: EventStore
) -> Iterator[tuple[Address, int, int]]:
    """Yield aggregates of which nothing was handled: where they are, and where their books end.

    Where nothing at all was, those that are on already were moved by an earlier command.
    """
    untouched = stores.checkpoints.get(one.task) is None
    for page in _pages(one, books):
        known = stores.lanes.places(one.task, [head.address for head in page])
        for address, end in page:
            place = known.get(address, one.order.first)
            if place < end and (untouched or address not in known):
                yield address, place, end


def _pages(one: Ordered, books: EventStore) -> Iterator[list[Head]]:
    after: Address | None = None
    while page := list(books.heads(sorted(one.order.domains), after, _PAGE)):
        yield page
        after = page[-1].address
