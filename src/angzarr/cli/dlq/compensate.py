"""angzarr dlq compensate: undo what events set off (spec A5)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from angzarr.analysis.ledger.entry import Entry, counted
from angzarr.analysis.ledger.export import results_json
from angzarr.analysis.ledger.operator_actions import Verb, refusal
from angzarr.analysis.replay.compensation import Compensator
from angzarr.cli.application import load_application
from angzarr.cli.dlq import entry_view
from angzarr.cli.dlq.selection import bulk, chosen
from angzarr.cli.standard_output import print_json
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable
from angzarr.wiring.analysis_worker import open_barred, open_compensator, open_replayer, person


@click.command()
@bulk
@click.pass_obj
def compensate(
    app_name: str | None,
    /,
    *,
    entries: tuple[str, ...],
    note: str,
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Undo what ENTRIES set off, by the compensation that their handler names.

    Exits with 1 if one of them could not be.
    """
    app = load_application(app_name)
    with ExitStack() as doors:
        compensator = open_compensator(
            app, open_replayer(app, doors, shows=False), open_barred(app, doors)
        )
        found = chosen(
            compensator.ledger,
            entries,
            wanted,
            limit,
            lambda one: not refusal(one, Verb.COMPENSATE),
        )
        if found and not dry_run and not yes:
            click.confirm(f"Compensate {counted(len(found))}?", abort=True, err=True)
        results: list[tuple[Entry, str]] = []
        try:
            for one in found:
                problem = _compensate(compensator, one, note, dry_run=dry_run)
                results.append((one, problem))
        finally:  # who is stopped half-way needs to know what was sent
            if as_json:
                print_json(results_json(results))
            else:
                done = "would be compensated" if dry_run else "compensated"
                entry_view.print_results(results, done=done)
    if any(problem for _, problem in results):
        raise SystemExit(1)


def _compensate(compensator: Compensator, entry: Entry, note: str, *, dry_run: bool) -> str:
    detail = compensator.ledger.open(entry.id)
    if detail is None:
        return "the entry was removed meanwhile"
    if dry_run:
        return compensator.problem(entry, detail.failure)
    try:
        return compensator.compensate(entry, detail.failure, by=person(), note=note)
    except BrokerUnavailable as error:
        return f"begun, the analysis worker sends it when the broker is back: {error}"
    except PayloadStoreUnavailable as error:
        return f"not begun, try again when its payload can be had: {error}"
