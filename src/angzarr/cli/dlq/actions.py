"""angzarr dlq skip, archive, restore, escalate, resolve, compensate, edit: a person's actions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, TextIO

import click

from angzarr.analysis.ledger.entry import Entry, EntryDetail, counted
from angzarr.analysis.ledger.export import results_json
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE, Verb, refusal, told_of_lane
from angzarr.analysis.ledger.replay_options import ReplayOrder, carrying
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.bulk_actions import Acted, act_on_all, would_act
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.edit import LARGEST, read_data
from angzarr.analysis.replay.editor import Draft, Editor, edited_from
from angzarr.analysis.replay.job import Selection, job_edit, plan_for
from angzarr.analysis.replay.job_view import job_json
from angzarr.cli.application import entry_ids, load_application
from angzarr.cli.dlq import replay as job_start
from angzarr.cli.dlq.configuration import chosen_versions, tell_differences
from angzarr.cli.dlq.entries import print_results
from angzarr.cli.dlq.job_view import whole_lines
from angzarr.cli.dlq.selection import bulk, chosen, find, over
from angzarr.cli.terminal import JSON, YES, print_json, safe
from angzarr.dead_letters.letter import Refusal
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable
from angzarr.runtime.text import escaped
from angzarr.wiring.analysis_worker import (
    open_barred,
    open_compensator,
    open_editor,
    open_replayer,
    open_skips,
    person,
)
from angzarr.wiring.operations import Operations

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
    ops = load_application(app_name)
    with ExitStack() as doors:
        skips = open_skips(ops, doors)
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
        print_results(told, done=f"would be {done}" if dry_run else done)
    _tell_of_lanes(verb, results)
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
    ops = load_application(app_name)
    with ExitStack() as doors:
        compensator = open_compensator(
            ops, open_replayer(ops, doors, shows=False), open_barred(ops, doors)
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
                print_results(results, done=done)
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


@click.command()
@click.argument("entry", shell_complete=entry_ids)
@click.option(
    "--file",
    "file",
    type=click.File("r", encoding="utf-8"),
    help="JSON to send instead; - reads it from the input. Without: $EDITOR.",
)
@click.option("--original", is_flag=True, help="Begin with the data before the last edit.")
@click.option("--force", is_flag=True, help="Also past the cap of replays; not for a proposal.")
@job_start.ordered
@click.option("--note", default="", help="Why; it stands in the history.")
@click.option("--dry-run", is_flag=True, help="Only check it and show what would change.")
@YES
@JSON
@click.pass_obj
def edit(
    app_name: str | None,
    /,
    entry: str,
    *,
    file: TextIO | None,
    original: bool,
    force: bool,
    to_queue: str,
    to_handler: str,
    fresh_sequence: bool,
    config: str,
    note: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Change the data of ENTRY's event, and replay it.

    The data is checked against what the handler declares. What is hidden stays hidden: leave its
    mark where it stands. Exits with 1 if it cannot be sent.

    With analysis.approvals.edits it is only proposed, as a replay job: somebody else approves it.
    """
    ops = load_application(app_name)
    proposes: bool = ops.settings.analysis.approvals.edits
    _check(proposes=proposes, force=force)
    with ExitStack() as doors:
        editor = open_editor(ops, open_replayer(ops, doors))
        detail = _opened(editor, entry)
        cap = None if force else ops.settings.analysis.most_replays
        barred = "" if dry_run or proposes else open_barred(ops, doors)()
        cure = "no job goes beyond" if proposes else "--force sends it"
        looks = dry_run and file is not None  # a dry run with a file needs no editor
        closed = "" if looks or replayable(detail.entry) else f"the entry is {detail.entry.status}"
        if problem := closed or barred or over(detail.entry, cap, cure):
            raise click.ClickException(problem)
        where = job_start.order_of(to_queue, to_handler, fresh_sequence=fresh_sequence)
        where = replace(where, config=chosen_versions(ops, config))
        tell_differences(ops, [detail.failure], where.config)
        if why := editor.replayer.targets.unknown(where):
            raise click.UsageError(why)
        draft = _draft(editor, detail, file, where, original=original)
        if not (proposes and as_json) or dry_run:
            _tell(draft, as_json=as_json)
        if dry_run:
            return
        if not yes:
            if proposes and as_json:
                _show(draft, err=True)
            sure = "Propose to replay" if proposes else "Replay"
            click.confirm(f"{sure} it with this data?", abort=True, err=True)
        if proposes:
            _propose(ops, detail.entry, draft, note, as_json=as_json)
            return
        problem = editor.replayer.replay(
            detail.entry, detail.failure, by=person(), order=_with_note(draft.order, note)
        )
    if problem:
        raise click.ClickException(problem)


def _with_note(order: ReplayOrder, note: str) -> ReplayOrder:
    """*order*, whose line in the history begins with *note*."""
    return replace(order, said="; ".join(filter(None, (note, order.said)))[:LONGEST_NOTE])


def _check(*, proposes: bool, force: bool) -> None:
    if proposes and force:
        msg = (
            "--force is for an edit that is sent at once: by analysis.approvals.edits it becomes"
            " a job, which keeps to the cap"
        )
        raise click.UsageError(msg)


def _draft(
    editor: Editor,
    detail: EntryDetail,
    file: TextIO | None,
    where: ReplayOrder,
    *,
    original: bool,
) -> Draft:
    """The edit that the person gives, with the options *where* to send it."""
    failure = edited_from(detail, original=original)
    if isinstance(failure, Refusal):
        raise click.ClickException(failure)
    now = detail.unanswered.letter or detail.failure
    data = _data(editor, failure, file)
    draft = editor.draft(detail.entry, failure, data, now=now, to_handler=where.to_handler)
    if isinstance(draft, Refusal):
        raise click.ClickException(draft)
    return replace(draft, order=carrying(where, draft.order))


def _propose(ops: Operations, entry: Entry, draft: Draft, note: str, *, as_json: bool) -> None:
    store = ops.open_replay_jobs()
    try:
        job = store.begin(
            Selection(entry_ids=(entry.id,)),
            plan_for(draft.order),
            by=person(),
            note=note,
            edit=job_edit(entry, draft.order, needs_approval=True),
        )
    finally:
        store.close()
    if not job.total:
        raise click.ClickException(job.said or f"the entry is {entry.status} meanwhile")
    if as_json:
        print_json(_told(draft) | {"job": job_json(job)})
        return
    click.echo(f"proposed as job {job.id}; somebody else: angzarr dlq jobs approve {job.id}")


def _opened(editor: Editor, beginning: str) -> EntryDetail:
    ledger = editor.replayer.ledger
    detail = ledger.open(find(ledger, beginning).id)
    if detail is None:
        msg = f"entry {beginning} was removed meanwhile"
        raise click.ClickException(msg)
    return detail


def _data(editor: Editor, failure: Failure, file: TextIO | None) -> Any:
    """The data that the person gives."""
    if file is not None:
        text: str | None = file.read(LARGEST + 1)
    else:
        shown = editor.shown(failure)
        if isinstance(shown, Refusal):
            raise click.ClickException(shown)
        given = escaped(json.dumps(shown, indent=2, ensure_ascii=False))
        text = click.edit(given, extension=".json")
    if text is None:
        raise click.Abort
    data = read_data(text)
    if isinstance(data, Refusal):
        raise click.ClickException(data)
    return data


def _tell(draft: Draft, *, as_json: bool) -> None:
    if as_json:
        print_json(_told(draft))
        return
    _show(draft, err=False)


def _show(draft: Draft, *, err: bool) -> None:
    for one in draft.changes:
        click.echo(safe(one).plain, err=err)
    for line in whole_lines(draft.whole):
        click.echo(safe(line).plain, err=err)


def _told(draft: Draft) -> dict[str, Any]:
    whole = draft.whole and draft.whole._asdict()
    return {"changes": [one._asdict() for one in draft.changes], "whole": whole}
