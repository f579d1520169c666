"""angzarr dlq list, show, stats: what a person can see of the ledger (spec A5)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from angzarr.analysis.ledger.entry import EntryDetail
from angzarr.analysis.ledger.export import entry_detail_json, entry_page_json, stats_json
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.cli.application import load_application
from angzarr.cli.completion import entry_ids
from angzarr.cli.dlq import entry_view
from angzarr.cli.dlq.behind import open_behind
from angzarr.cli.dlq.selection import JSON, STATUS, filter_of, filtered, find, opened, status_of
from angzarr.cli.standard_output import print_json
from angzarr.dead_letters.letter import DeadLetter
from angzarr.wiring.application import Application


@click.command("list")
@filtered
@STATUS
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@JSON
@click.pass_obj
def list_(
    app_name: str | None,
    /,
    *,
    status: str | None,
    limit: int,
    after: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List entries, the one that failed last first."""
    app = load_application(app_name)
    with opened(app) as ledger, ExitStack() as doors:
        try:
            page = ledger.get_failed_events(
                filter_of(wanted), status=status_of(status), limit=limit, after=after
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        behind = open_behind(app, doors)(page.entries)
    if as_json:
        print_json(entry_page_json(page, behind))
    else:
        entry_view.print_page(page, behind)


@click.command()
@click.argument("entry", shell_complete=entry_ids)
@JSON
@click.pass_obj
def show(app_name: str | None, entry: str, *, as_json: bool) -> None:
    """Show everything about ENTRY (its id, or how it begins)."""
    app = load_application(app_name)
    with opened(app) as ledger, ExitStack() as doors:
        detail = ledger.open(find(ledger, entry).id)
        if detail is None:
            msg = f"entry {entry} was removed meanwhile"
            raise click.ClickException(msg)
        behind = open_behind(app, doors)([detail.entry])
    protection = _protection(app, detail)
    if as_json:
        print_json(entry_detail_json(detail, behind) | {"protection": protection})
    else:
        entry_view.print_detail(detail, protection, behind.get(detail.entry.id, 0))


@click.command()
@JSON
@click.pass_obj
def stats(app_name: str | None, *, as_json: bool) -> None:
    """Count all entries."""
    with opened(load_application(app_name)) as ledger:
        found = ledger.get_failure_stats()
    if as_json:
        print_json(stats_json(found))
    else:
        entry_view.print_stats(found)


def _protection(app: Application, detail: EntryDetail) -> dict[str, str]:
    """Return what is known of who wrote and who can open the letter."""
    failure = detail.failure
    return dict(app.clearance().told(failure)) if isinstance(failure, DeadLetter) else {}
