"""The spool for people and programs. What stands in a letter is shown, never obeyed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from rich.table import Table

from angzarr.ages import ago
from angzarr.cli.entry_view import console, safe
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, encode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.spooled import Spooled, SpoolTally

_COLUMNS: Final = ("letter", "put", "bytes", "domain", "handler", "reason", "error")


class Row(NamedTuple):
    """A letter in the spool with what its file holds, or why that cannot be read."""

    spooled: Spooled
    letter: DeadLetter | None
    problem: str


def print_rows(rows: Sequence[Row], all_: int, now: datetime) -> None:
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


def print_row(row: Row) -> None:
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


def row_json(row: Row) -> dict[str, Any]:
    """Return *row* as a JSON object; `problem` is null where the letter can be read."""
    letter = row.letter
    return row.spooled._asdict() | {
        "domain": letter.domain if letter else None,
        "handler": letter.handler if letter else None,
        "reason": letter.reason.value if letter else None,
        "error": _error(letter),
        "problem": row.problem or None,
    }


def letter_json(row: Row) -> Any:
    """Return the letter as the JSON that a queue would get, None where it has no such form."""
    if row.letter is None:
        return None
    encoded = encode(row.letter)
    return json.loads(encoded.body) if encoded.content_type == JSON_CONTENT_TYPE else None


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    spooled, letter = row.spooled, row.letter
    start = (spooled.letter_id, ago(spooled.at, now), str(spooled.size))
    if letter is None:
        return (*start, "", "", "", row.problem)
    return (*start, letter.domain, letter.handler, letter.reason.value, _error(letter) or "")


def _error(letter: DeadLetter | None) -> str | None:
    if letter is None:
        return None
    return f"{letter.error_type}: {letter.error_message}"[:200] if letter.error_type else ""
