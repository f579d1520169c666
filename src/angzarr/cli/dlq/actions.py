"""angzarr dlq skip, archive, restore, escalate, resolve: what a person says of entries (A5)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import click

from angzarr.analysis.ledger.entry import counted
from angzarr.analysis.ledger.export import results_json
from angzarr.analysis.ledger.operator_actions import Verb, refusal, told_of_lane
from angzarr.analysis.replay.bulk_actions import Acted, act_on_all, would_act
from angzarr.cli.application import load_application
from angzarr.cli.dlq import entry_view
from angzarr.cli.dlq.selection import bulk, chosen
from angzarr.cli.standard_output import print_json
from angzarr.wiring.analysis_worker import open_skips, person

#: What each verb is for, as its help says it, and what its table says of an entry.
_HELP: Final = {
    Verb.SKIP: ("Skip ENTRIES: nothing is to be done about them.", "skipped"),
    Verb.ARCHIVE: ("Archive ENTRIES for study; they are kept longer than others.", "archived"),
    Verb.RESTORE: ("Bring archived or skipped ENTRIES back to those that are held.", "held"),
    Verb.ESCALATE: ("Escalate ENTRIES: somebody else must look at them.", "escalated"),
    Verb.RESOLVE: ("Resolve ENTRIES that somebody dealt with by hand.", "resolved"),
}

_LEFT: Final = (
    "later events wait behind {}: the analysis worker lets them go on when the broker is back, or"
    " the brake is released"
)


def _command(verb: Verb) -> click.Command:
    text, done = _HELP[verb]

    @click.command(verb.value, help=f"{text} Exits with 1 if one of them could not be.")
    @bulk
    @click.pass_obj
    def command(app_name: str | None, /, **options: Any) -> None:
        _run(app_name, verb, done, **options)

    return command


def _run(
    app_name: str | None,
    verb: Verb,
    done: str,
    *,
    entries: tuple[str, ...],
    note: str,
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    app = load_application(app_name)
    with ExitStack() as doors:
        skips = open_skips(app, doors)
        found = chosen(skips.ledger, entries, wanted, limit, lambda one: not refusal(one, verb))
        if not dry_run and not yes and found:
            click.confirm(f"{verb.value.capitalize()} {counted(len(found))}?", abort=True, err=True)
        if dry_run:
            results = would_act(skips, verb, found)
        else:
            results = act_on_all(skips, verb, found, note=note, by=person())
    told = [(one.entry, one.problem) for one in results]
    if as_json:
        print_json(results_json(told))
    else:
        entry_view.print_results(told, done=f"would be {done}" if dry_run else done)
    for said in sorted(
        {told_of_lane(one.entry, verb) for one in results if not one.problem} - {""}
    ):
        click.echo(f"of ordered handlers: {said}", err=True)
    if left := sum(one.begun for one in results):
        click.echo(_LEFT.format(counted(left)), err=True)
    if any(problem for _, problem in told):
        raise SystemExit(1)


def _tell_of_lanes(verb: Verb, results: Sequence[Acted]) -> None:
    """Say what that means for the later events of ordered handlers, if it is about any."""
    told = {told_of_lane(one.entry, verb) for one in results if not one.problem}
    for said in sorted(told - {""}):
        click.echo(f"of ordered handlers: {said}", err=True)
    if left := sum(one.begun for one in results):
        click.echo(_LEFT.format(counted(left)), err=True)


COMMANDS: Final = tuple(_command(verb) for verb in _HELP)
