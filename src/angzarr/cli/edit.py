"""angzarr dlq edit: give an event other data, and replay it (spec A5)."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any, TextIO

import click

from angzarr.analysis.edit import LARGEST, read_data
from angzarr.analysis.editor import Draft, Editor
from angzarr.analysis.entry import EntryDetail, Failure
from angzarr.cli.analyze import open_barred, open_replayer, person
from angzarr.cli.application import Application, load_application
from angzarr.cli.completion import entry_ids
from angzarr.cli.entry_choice import JSON, find, over
from angzarr.cli.entry_json import print_json
from angzarr.cli.entry_view import console, safe
from angzarr.dead_letters.refusal import Refusal


@click.command()
@click.argument("entry", shell_complete=entry_ids)
@click.option(
    "--file",
    "file",
    type=click.File("r", encoding="utf-8"),
    help="JSON to send instead; - reads it from the input. Without: $EDITOR.",
)
@click.option("--original", is_flag=True, help="Begin with the data before the last edit.")
@click.option("--force", is_flag=True, help="Also past the cap of replays.")
@click.option("--dry-run", is_flag=True, help="Only check it and show what would change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Change the data of ENTRY's event, and replay it.

    The data is checked against what the handler declares. What is hidden stays hidden: leave its
    mark where it stands. Exits with 1 if it cannot be sent.
    """
    app = load_application(app_name)
    with ExitStack() as doors:
        editor = _editor(app, doors)
        detail = _opened(editor, entry)
        cap = None if force else app.settings.analysis.most_replays
        barred = "" if dry_run else open_barred(app, doors)()
        if problem := barred or over(detail.entry, cap):
            raise click.ClickException(problem)
        failure = _failure(detail, original=original)
        draft = editor.draft(detail.entry, failure, _data(editor, failure, file))
        if isinstance(draft, Refusal):
            raise click.ClickException(draft)
        _tell(draft, as_json=as_json)
        if dry_run:
            return
        if not yes:
            click.confirm("Replay it with this data?", abort=True, err=True)
        problem = editor.replayer.replay(
            detail.entry, detail.failure, by=person(), order=draft.order
        )
    if problem:
        raise click.ClickException(problem)


def _editor(app: Application, doors: ExitStack) -> Editor:
    def decoder(task: str) -> Any:
        handler = app.find_handler(task)
        return handler.decode if handler else None

    return Editor(
        replayer=open_replayer(app, doors), decoder=decoder, protect=app.letter_protection()
    )


def _opened(editor: Editor, beginning: str) -> EntryDetail:
    ledger = editor.replayer.ledger
    detail = ledger.open(find(ledger, beginning).id)
    if detail is None:
        msg = f"entry {beginning} was removed meanwhile"
        raise click.ClickException(msg)
    return detail


def _failure(detail: EntryDetail, *, original: bool) -> Failure:
    """Return what the edit begins with: its last replay's data, or those before the last edit."""
    if not original:
        return detail.unanswered.letter or detail.failure
    if detail.before is None:
        msg = "it was never edited"
        raise click.ClickException(msg)
    return detail.before


def _data(editor: Editor, failure: Failure, file: TextIO | None) -> Any:
    """Return the data that the person gives."""
    if file is not None:
        text: str | None = file.read(LARGEST + 1)
    else:
        shown = editor.shown(failure)
        if isinstance(shown, Refusal):
            raise click.ClickException(shown)
        text = click.edit(json.dumps(shown, indent=2, ensure_ascii=False), extension=".json")
    if text is None:
        raise click.Abort
    data = read_data(text)
    if isinstance(data, Refusal):
        raise click.ClickException(data)
    return data


def _tell(draft: Draft, *, as_json: bool) -> None:
    if as_json:
        print_json({"changes": [one._asdict() for one in draft.changes]})
        return
    for one in draft.changes:
        console().print(safe(one))
