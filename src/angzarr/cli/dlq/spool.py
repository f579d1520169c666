"""angzarr dlq spool: what waits on a disk while the dead-letter queue is away (spec L4).

The spool for people and programs. What stands in a letter is shown, never obeyed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.dlq.letter_acts import recording_letters
from angzarr.cli.terminal import JSON, console, print_json, safe
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, encode, read_receipt
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.spool_forwarder import Aside, Spooled, SpoolTally
from angzarr.errors import DecodeError
from angzarr.facts.act import ActKind
from angzarr.runtime.text import ago, printable
from angzarr.wiring import dead_letters as letter_wiring

_PATH: Final = click.option(
    "--path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the spool; by default the app's.",
)
_WHICH: Final = click.option(
    "--aside", type=click.Choice([aside.value for aside in Aside]), help="What was set aside."
)


@click.group()
def spool() -> None:
    """Letters on the disk of this machine, until a dead-letter queue takes them."""


@spool.command("list")
@_PATH
@_WHICH
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@JSON
@click.pass_obj
def list_(
    app_name: str | None, path: Path | None, aside: str | None, limit: int, *, as_json: bool
) -> None:
    """List the letters that wait, or were set aside, the oldest first."""
    folder = _folder(app_name, path)
    letters = _letters(folder, aside)
    rows = [SpoolRow(one, *_read(folder, one, aside)) for one in letters[:limit]]
    if as_json:
        print_json({"letters": [row_json(row) for row in rows], "all": len(letters)})
    else:
        print_rows(rows, len(letters), datetime.now(UTC))


@spool.command()
@click.argument("letter")
@_PATH
@_WHICH
@JSON
@click.pass_obj
def show(
    app_name: str | None, letter: str, path: Path | None, aside: str | None, *, as_json: bool
) -> None:
    """Show LETTER, by its id, its file's name or how either begins."""
    folder = _folder(app_name, path)
    one = _find(_letters(folder, aside), letter)
    row = SpoolRow(one, *_read(folder, one, aside))
    if as_json:
        print_json(row_json(row) | {"letter": letter_json(row)})
    else:
        print_row(row)


@spool.command()
@_PATH
@JSON
@click.pass_obj
def stats(app_name: str | None, path: Path | None, *, as_json: bool) -> None:
    """Count what is in the spool; exits with 1 if anything was set aside."""
    tally = _folder(app_name, path).tally()
    if as_json:
        print_json(tally._asdict())
    else:
        print_tally(tally, datetime.now(UTC))
    if tally.refused or tally.damaged:
        raise SystemExit(1)


@spool.command()
@_PATH
@click.option("--refused", is_flag=True, help="Try those again, too, that no queue took.")
@JSON
@click.pass_obj
def forward(app_name: str | None, path: Path | None, *, refused: bool, as_json: bool) -> None:
    """Forward what waits to the app's dead-letter queues, now.

    Exits with 1 if something could not be forwarded.
    """
    ops = load_application(app_name)
    ops.check_analysis()
    forwarder = ops.open_forwarder(path)
    done: Counter[str] = Counter()
    why = ""
    with recording_letters(app_name, ActKind.LETTERS_FORWARDED, "spool") as tell:
        try:
            if refused:
                _folder(app_name, path).bring_back(Aside.REFUSED)
            while not (batch := forwarder.batch()).empty:
                done.update(
                    forwarded=batch.forwarded, kept=batch.kept,
                    refused=batch.refused, damaged=batch.damaged,
                )  # fmt: skip
                why = batch.why or why
        finally:
            forwarder.leave()
            tell({**done, "carried": done.total(), "with_refused": refused})
    if batch.busy:
        why = "another process is forwarding from this spool"
    _tell(done, why, as_json=as_json)
    if why or done["refused"] or done["damaged"]:
        raise SystemExit(1)


def _tell(done: Counter[str], why: str, *, as_json: bool) -> None:
    counts = {name: done[name] for name in ("forwarded", "kept", "refused", "damaged")}
    if as_json:
        print_json(counts | {"problem": why or None})
        return
    click.echo(", ".join(f"{count} {name}" for name, count in counts.items()))
    if why:
        click.echo(printable(why), err=True)


def _folder(app_name: str | None, path: Path | None) -> Any:
    found = path or letter_wiring.spool_path(load_application(app_name).settings)
    return letter_wiring.open_folder(found)


def _letters(folder: Any, aside: str | None) -> list[Spooled]:
    found: list[Spooled] = folder.set_apart(Aside(aside)) if aside else folder.waiting()
    return found


def _read(folder: Any, one: Spooled, aside: str | None) -> tuple[Any, str]:
    """The letter, or None and why."""
    try:
        letter = folder.read(one, aside=Aside(aside) if aside else None)
    except DecodeError as error:
        return None, str(error)
    if isinstance(letter, RawLetter):
        why = read_receipt(letter.domain, letter.raw, letter.content_type, None).problem
        return None, f"{len(letter.raw)} bytes of {letter.domain} that are not a letter: {why}"
    return letter, "" if letter else "it has just been forwarded"


def _find(letters: list[Spooled], beginning: str) -> Spooled:
    found = [one for one in letters if beginning in {one.name, one.letter_id}]
    found = found or [
        one for one in letters
        if one.letter_id.startswith(beginning) or one.name.startswith(beginning)
    ]  # fmt: skip
    if not found:
        msg = f"there is no letter {beginning!r} here; `angzarr dlq spool list` shows them"
        raise click.ClickException(printable(msg))
    if len({one.letter_id for one in found}) > 1:
        msg = f"several letters begin with {beginning!r}: give more of the id"
        raise click.UsageError(printable(msg))
    return found[0]


_COLUMNS: Final = ("letter", "put", "bytes", "domain", "handler", "reason", "error")


class SpoolRow(NamedTuple):
    """A letter in the spool with what its file holds, or why that cannot be read."""

    spooled: Spooled
    letter: DeadLetter | None
    problem: str


def print_rows(rows: Sequence[SpoolRow], all_: int, now: datetime) -> None:
    """Print *rows* of *all_* letters."""
    out = console()
    if not rows:
        out.print("no letters")
        return
    table = Table()
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column in ("letter", "put"))
    for row in rows:
        table.add_row(*(safe(cell) for cell in _cells(row, now)))
    out.print(table)
    if all_ > len(rows):
        out.print(safe(f"{all_ - len(rows)} more: --limit {all_}"))


def print_row(row: SpoolRow) -> None:
    """Print everything about a letter."""
    out = console()
    out.print(safe(f"{row.spooled.name}\n{row.problem}".strip()))
    if (told := letter_json(row)) is not None:
        out.print(safe(json.dumps(told, indent=2, ensure_ascii=False)))
    elif row.letter is not None:
        out.print("others wrote it, and JSON cannot hold all of it; its file has it in base64")


def print_tally(tally: SpoolTally, now: datetime) -> None:
    """Print how much there is."""
    oldest = f", the oldest put {ago(tally.oldest_at, now)}" if tally.oldest_at else ""
    out = console()
    out.print(safe(f"{tally.letters} letters wait{oldest}"))
    out.print(safe(f"{tally.refused} refused, {tally.damaged} damaged, {tally.size} bytes in all"))


def row_json(row: SpoolRow) -> dict[str, Any]:
    """*row* as a JSON object; `problem` is null where the letter can be read."""
    letter = row.letter
    return row.spooled._asdict() | {
        "domain": letter.domain if letter else None,
        "handler": letter.handler if letter else None,
        "reason": letter.reason.value if letter else None,
        "error": _error(letter),
        "problem": row.problem or None,
    }


def letter_json(row: SpoolRow) -> Any:
    """The letter as the JSON that a queue would get, None where it has no such form."""
    if row.letter is None:
        return None
    encoded = encode(row.letter)
    return json.loads(encoded.body) if encoded.content_type == JSON_CONTENT_TYPE else None


def _cells(row: SpoolRow, now: datetime) -> tuple[str, ...]:
    spooled, letter = row.spooled, row.letter
    start = (spooled.letter_id, ago(spooled.at, now), str(spooled.size))
    if letter is None:
        return (*start, "", "", "", row.problem)
    return (*start, letter.domain, letter.handler, letter.reason.value, _error(letter) or "")


def _error(letter: DeadLetter | None) -> str | None:
    if letter is None:
        return None
    return f"{letter.error_type}: {letter.error_message}"[:200] if letter.error_type else ""
