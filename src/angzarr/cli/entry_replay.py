"""angzarr dlq replay: send entries on their road again (spec A4, A5)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import click

from angzarr.analysis.entry import Entry
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import replayable
from angzarr.cli import entry_json, entry_view
from angzarr.cli.analyze import open_replayer, person
from angzarr.cli.application import load_application
from angzarr.cli.completion import entry_ids
from angzarr.cli.entry_choice import JSON, STATUS, chosen, filtered
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable


@click.command()
@click.argument("entries", nargs=-1, shell_complete=entry_ids)
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
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send ENTRIES, or all that a filter finds, on their road again.

    Exits with 1 if one of them could not be replayed.
    """
    with ExitStack() as doors:
        replayer = open_replayer(load_application(app_name), doors)
        found = chosen(replayer.ledger, entries, wanted, limit, replayable)
        if found and not dry_run and not yes:
            click.confirm(f"Replay {len(found)} entries?", abort=True, err=True)
        results: list[tuple[Entry, str]] = []
        try:
            for one in found:
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
        entry_view.print_results(results, done="would be replayed" if dry_run else "replayed")


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
