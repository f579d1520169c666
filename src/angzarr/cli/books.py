"""angzarr books: event books and what is kept beside them."""

from __future__ import annotations

import click

from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON
from angzarr.cli.saga.selection import opened
from angzarr.cli.standard_output import print_json
from angzarr.clock import SystemClock
from angzarr.maintenance.retention import Removal
from angzarr.wiring.event_store import removals


@click.group()
def books() -> None:
    """Look after event books."""


@books.command()
@JSON
@click.pass_obj
def prune(app_name: str | None, *, as_json: bool) -> None:
    """Forget decisions and closed rejected commands that are older than the settings keep them.

    Workers that run aggregates do so once an hour. Events stay.
    """
    app = load_application(app_name)
    removed: dict[str, int] = {}
    with opened(app) as shelves:
        for removal in removals(shelves.books, shelves.rejections, app.settings):
            removed[removal.name] = number = _all(removal)
            if not as_json:
                click.echo(f"removed {number:,} {removal.what}")
    if as_json:
        print_json(removed)


def _all(removal: Removal) -> int:
    """Remove a batch after the other until there is none; return how many rows that were."""
    now, number, more = SystemClock().now(), 0, True
    while more:
        removed, more = removal.remove(now)
        number += removed
    return number
