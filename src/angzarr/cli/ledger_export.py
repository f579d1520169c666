"""angzarr ledger export: entries, or their letters, into a file or another program."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.export import Format, entry_lines, letter_lines
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.replay.bulk_actions import in_status
from angzarr.cli.application import load_application
from angzarr.cli.dlq.letters_move import Tell, progress
from angzarr.cli.dlq.selection import STATUS, filter_of, filtered, opened, status_of
from angzarr.cli.new_file import new_file
from angzarr.cli.standard_output import Sink, standard_output
from angzarr.wiring.analysis_worker import stopped_by_signal


@click.command()
@filtered
@STATUS
@click.option("--format", "form", type=click.Choice([one.value for one in Format]),
              default=Format.JSONL.value, show_default=True)  # fmt: skip
@click.option("--letters", is_flag=True, help="Their letters, as `dlq import` reads them.")
@click.option("--limit", type=click.IntRange(1), help="No more entries than these.")
@click.option("--to", "target", default="-", metavar="FILE", help="A new file; -: standard output.")
@click.pass_obj
def export(
    app_name: str | None,
    /,
    *,
    status: str | None,
    form: str,
    letters: bool,
    limit: int | None,
    target: str,
    **wanted: Any,
) -> None:
    """Write entries of the ledger, or their letters, the one that failed last first.

    A file has its name once it is whole. Exits with 1 if it was stopped.
    """
    if letters and form != Format.JSONL:
        raise click.UsageError("letters are written as JSON lines: leave --format csv out")
    with opened(load_application(app_name)) as ledger, stopped_by_signal() as stop:
        found = in_status(ledger, filter_of(wanted), status_of(status))
        with progress("exporting", None, bar=target != "-", what="entries") as tell:
            counted = _Counted(islice(found, limit), stop, tell)
            lines = _lines(ledger, counted, Format(form), letters=letters)
            if target == "-":
                written = _write(standard_output(), lines)
            else:
                with new_file(Path(target)) as file:
                    written = _write(file, lines)
    click.echo(_told(written, counted.number, letters=letters), err=True)


def _told(lines: int, entries: int, *, letters: bool) -> str:
    if not letters:
        return f"exported {entries} entries"
    gone = f"; removed meanwhile: {entries - lines}" if lines < entries else ""
    return f"exported {lines} letters{gone}"


def _lines(
    ledger: Ledger, entries: Iterable[Entry], form: Format, *, letters: bool
) -> Iterator[bytes]:
    return letter_lines(ledger, entries) if letters else entry_lines(entries, form)


def _write(file: Sink, lines: Iterable[bytes]) -> int:
    """Write *lines*; return how many they were."""
    number = 0
    for number, line in enumerate(lines, 1):  # noqa: B007 - the last one counts
        file.write(line)
    file.flush()
    return number


class _Counted:
    """Entries that are counted while they are taken; it breaks off where it is to stop."""

    def __init__(self, entries: Iterable[Entry], stop: threading.Event, tell: Tell) -> None:
        self._entries, self._stop, self._tell = entries, stop, tell
        self.number = 0

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries:
            if self._stop.is_set():
                msg = f"stopped after {self.number} entries; run it again"
                raise click.ClickException(msg)
            yield entry
            self.number += 1
            self._tell(self.number)
