"""angzarr dlq import: letters out of a file that was exported into a queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import click

from angzarr.cli.dlq.letter_acts import recording_letters
from angzarr.cli.dlq.letters_file import (
    NAMES,
    FilePosition,
    LetterLine,
    find_place,
    lines,
    opened_queue,
)
from angzarr.cli.dlq.letters_move import print_reasons, progress
from angzarr.cli.terminal import JSON, print_json
from angzarr.clock import SystemClock
from angzarr.dead_letters.bounds import WIDEST
from angzarr.dead_letters.codec import MAX_LINE, from_line
from angzarr.dead_letters.queue import Receipt
from angzarr.dead_letters.transfer import BATCH, MOST_KEPT, Carry, carry_into, patiently
from angzarr.errors import DecodeError
from angzarr.facts.act import ActKind
from angzarr.wiring.analysis_worker import stopped_by_signal

#: Bytes of lines that are put together.
_BATCH_BYTES: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class _Import:
    """What became of the lines of a file."""

    put: int = 0
    #: Lines that no queue took, and lines that cannot be read, with the reason, by number.
    refused: dict[int, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)


@click.command("import")
@click.argument("file", metavar="FILE|-")
@click.option("--to", "target", required=True, metavar="URL", help=f"Where to: {NAMES}")
@JSON
@click.pass_obj
def import_(app_name: str | None, /, *, file: str, target: str, as_json: bool) -> None:
    """Put the letters of FILE, as `export` wrote them, into a queue.

    How far it came is kept in FILE.done, so that it goes on there when it is run again. Exits with
    1 if a line could not be read, was refused, or it was stopped.
    """
    place = find_place(target, app_name)
    done = _Import()
    with _stream(file) as (stream, path), opened_queue(target, place, app_name) as queue:
        position = FilePosition(path, place.shown)
        stream.seek(position.at) if position.at else None
        recording = recording_letters(app_name, ActKind.LETTERS_IMPORTED, place.shown)
        with stopped_by_signal() as stop, recording as record:
            try:
                with progress("importing", None, bar=not as_json) as tell:
                    for batch in _batches(lines(stream, number=position.number, at=position.at)):
                        _put(batch, carry_into(queue), done, stop.is_set)
                        if not done.refused:
                            position.reach(batch[-1])
                        tell(done.put)
                        if stop.is_set() or len(done.refused) >= MOST_KEPT:
                            break
                    else:
                        if not done.refused:
                            position.finish()
            finally:
                record({"from": file, "to": place.shown, "carried": done.put})
                _tell(done, stopped=stop.is_set(), as_json=as_json)
        if done.refused or done.unread or stop.is_set():
            raise SystemExit(1)


@contextmanager
def _stream(file: str) -> Iterator[tuple[BinaryIO, Path | None]]:
    if file == "-":
        yield sys.stdin.buffer, None
        return
    path = Path(file)
    try:
        stream = path.open("rb")
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror or error}"
        raise click.ClickException(msg) from error
    with stream:
        yield stream, path


def _batches(found: Iterator[LetterLine]) -> Iterator[list[LetterLine]]:
    batch: list[LetterLine] = []
    size = 0
    for line in found:
        batch.append(line)
        size += len(line.text or b"")
        if len(batch) >= BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _put(batch: list[LetterLine], carry: Carry, done: _Import, stop: Callable[[], bool]) -> None:
    """Put the letters of *batch* that can be read, and note what became of each line."""
    read: list[tuple[int, Receipt]] = []
    for line in batch:
        try:
            read.append((line.number, _receipt(line)))
        except DecodeError as error:
            done.unread[line.number] = str(error)
    receipts = [receipt for _, receipt in read]
    answers = patiently(lambda: carry(receipts), clock=SystemClock(), stop=stop)
    for (number, _), why in zip(read, answers, strict=True):
        if why is None:
            done.put += 1
        else:
            done.refused[number] = why


def _receipt(line: LetterLine) -> Receipt:
    if line.text is None:
        msg = f"it is longer than {MAX_LINE} bytes"
        raise DecodeError(msg)
    return from_line(line.text, WIDEST)  # it was read within what the settings said then


def _tell(done: _Import, *, stopped: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "imported": done.put,
                "refused": {str(number): why for number, why in done.refused.items()},
                "unread": {str(number): why for number, why in done.unread.items()},
                "stopped": stopped,
            }
        )
        return
    click.echo(f"imported {done.put} letters")
    for what, found in (("were refused", done.refused), ("cannot be read", done.unread)):
        if found:
            click.echo(f"{len(found)} lines {what}:")
            print_reasons({f"line {number}": why for number, why in found.items()}, err=False)
    if stopped:
        click.echo("stopped; run it again for the rest")
