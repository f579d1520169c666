"""angzarr dlq replay: send entries on their road again (spec A4, A5)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import click

from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import replayable
from angzarr.cli import entry_json, entry_view
from angzarr.cli.analyze import open_replayer, person
from angzarr.cli.application import load_application
from angzarr.cli.entry_choice import JSON, STATUS, filter_of, filtered, find, status_of
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable


@click.command()
@click.argument("entries", nargs=-1)
@filtered
@STATUS
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
@click.pass_obj
def replay(
    app_name: str | None,
    /,
    entries: tuple[str, ...],
    *,
    status: str | None,
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send ENTRIES, or all that a filter finds, on their road again.

    Exits with 1 if one of them could not be replayed.
    """
    if bool(entries) == bool(status or any(wanted.values())):
        raise click.UsageError("say which: either entries by id, or a filter such as --group")
    with ExitStack() as doors:
        replayer = open_replayer(load_application(app_name), doors)
        chosen = (
            [find(replayer.ledger, one) for one in dict.fromkeys(entries)]
            if entries
            else _all(replayer.ledger, filter_of(wanted), status_of(status), limit)
        )
        if chosen and not dry_run and not yes:
            click.confirm(f"Replay {len(chosen)} entries?", abort=True, err=True)
        results: list[tuple[Entry, str]] = []
        try:
            for one in chosen:
                problem = _replay(replayer, one, dry_run=dry_run)
                results.append((one, problem))
        finally:  # who is stopped half-way needs to know what was sent
            _tell(results, dry_run=dry_run, as_json=as_json)
    if any(problem for _, problem in results):
        raise SystemExit(1)


def _tell(results: Sequence[tuple[Entry, str]], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        entry_json.print_json(entry_json.results_json(results))
    else:
        entry_view.print_results(results, dry_run=dry_run)


def _replay(replayer: Replayer, entry: Entry, *, dry_run: bool) -> str:
    detail = replayer.ledger.open(entry.id)
    if detail is None:
        return "the entry was removed meanwhile"
    if dry_run:
        return replayer.problem(entry, detail.failure)
    try:
        return replayer.replay(entry, detail.failure, by=person())
    except BrokerUnavailable as error:
        return f"begun, the analysis worker sends it when the broker is back: {error}"
    except PayloadStoreUnavailable as error:
        return f"not begun, replay it when its payload can be had: {error}"


def _all(ledger: Ledger, wanted: EntryFilter, status: Status | None, limit: int) -> Sequence[Entry]:
    """Return up to *limit* entries that can be replayed, over all pages."""
    found: list[Entry] = []
    after = ""
    while len(found) < limit:
        page = ledger.get_failed_events(wanted, status=status, limit=LONGEST_PAGE, after=after)
        found += (entry for entry in page.entries if replayable(entry))
        after = page.next
        if not after:
            break
    return found[:limit]
