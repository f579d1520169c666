"""Queues and files that letters are moved between: named by a person, opened, written whole."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Self

import click

from angzarr.cli.application import load_application
from angzarr.cli.terminal import ByteSink
from angzarr.dead_letters.codec import BEGINNING, MAX_LINE, to_line
from angzarr.dead_letters.fallback_queue import SPOOL
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue, Receipt
from angzarr.settings.dlq_urls import FORMS, QueuePlace, place_of, read_url
from angzarr.wiring.dead_letters import open_backend, open_queue, open_unprotected, places

#: Bytes of a file by which it is known again.
_HEAD: Final = 4096
#: Bytes read at once where a line's end is looked for.
_CHUNK: Final = 1024 * 1024


class LetterFile:
    """A file that letters are appended to; it belongs to its owner alone, letters are private.

    A half line that a killed export left is taken away: its letter was not done.
    """

    def __init__(self, path: Path, *, append: bool) -> None:
        self._path = path
        with _told(f"{path} cannot be written"):
            flags = os.O_RDWR | os.O_CREAT | (0 if append else os.O_EXCL)
            self._file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _mend(self._file)
                self._sync_folder()
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def carry(self, receipts: Sequence[Receipt]) -> list[str | None]:
        """Write *receipts* and return once they are on the disk; else raises ClickException."""
        whole = self._file.seek(0, os.SEEK_END)
        try:
            for receipt in receipts:
                _write(self._file, to_line(receipt))
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # the next export repairs a half-written file
                self._file.truncate(whole)
            msg = f"{self._path} cannot be written: {error.strerror or error}"
            raise click.ClickException(msg) from error
        return [None] * len(receipts)

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def carry_to(stream: ByteSink, receipts: Sequence[Receipt]) -> list[str | None]:
    """Write *receipts* to a stream, which keeps nothing for certain."""
    with _told("the letters cannot be written"):
        for receipt in receipts:
            stream.write(to_line(receipt))
        stream.flush()
    return [None] * len(receipts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLine:
    """A line of a file: its number from 1, its text (None: too long), where the next begins."""

    number: int
    text: bytes | None
    end: int


def lines(stream: BinaryIO, *, number: int = 0, at: int = 0) -> Iterator[LetterLine]:
    """Read *stream* line by line, after line *number*, which ends *at*; empty ones are left out."""
    while text := stream.readline(MAX_LINE):
        number += 1
        at += len(text)
        whole = text.endswith(b"\n") or len(text) < MAX_LINE
        while not whole:
            rest = stream.readline(_CHUNK)
            at += len(rest)
            whole = rest.endswith(b"\n") or not rest
            text = b""
        if text.strip() or not text:
            yield LetterLine(number=number, text=text or None, end=at)


class FilePosition:
    """How far a file was imported, kept beside it; without a file (standard input) nowhere."""

    def __init__(self, path: Path | None, target: str) -> None:
        self._path = path
        self._target = target
        self._note = path.with_name(f"{path.name}.done") if path else None
        self.number, self.at = self._read()

    def reach(self, line: LetterLine) -> None:
        """Note, durably, that all up to *line* is done."""
        self.number, self.at = line.number, line.end
        if self._note is None or self._path is None:
            return
        text = json.dumps(
            {
                "line": line.number,
                "offset": line.end,
                "to": self._target,
                "known_by": _digest(self._path, line.end),
            }
        )
        new = self._note.with_name(f"{self._note.name}.new")
        with _told(f"the position cannot be kept in {self._note}"), new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            new.replace(self._note)

    def finish(self) -> None:
        """Forget the position: all of the file is done."""
        if self._note:
            self._note.unlink(missing_ok=True)

    def _read(self) -> tuple[int, int]:
        if self._note is None or self._path is None or not self._note.exists():
            return 0, 0
        try:
            kept = json.loads(self._note.read_bytes())
            number, at = int(kept["line"]), int(kept["offset"])
            same = kept["known_by"] == _digest(self._path, at)
            target = kept["to"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"{self._note} is not the position of an import: remove it to start over"
            raise click.ClickException(msg) from error
        if not same or self._path.stat().st_size < at:
            msg = f"{self._note} belongs to another {self._path.name}: remove it to begin anew"
            raise click.ClickException(msg)
        if target != self._target:
            msg = f"{self._note} says that an import to {target} began: finish it, or remove it"
            raise click.ClickException(msg)
        return number, at


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn a failure of the file system into one sentence."""
    try:
        yield
    except FileExistsError as error:
        msg = f"{what}: it exists; name another, or say --append to write behind it"
        raise click.ClickException(msg) from error
    except BlockingIOError as error:
        msg = f"{what}: another export writes it"
        raise click.ClickException(msg) from error
    except OSError as error:
        msg = f"{what}: {error.strerror or error}"
        raise click.ClickException(msg) from error


def _write(file: BinaryIO, text: bytes) -> None:
    """Write all of *text*: an unbuffered file may take a part."""
    left = memoryview(text)
    while left:
        left = left[file.write(left) :]


def _mend(file: BinaryIO) -> None:
    """End the last line: a half one of ours is cut off, anybody else's gets its end."""
    size = file.seek(0, os.SEEK_END)
    start = _last_line(file, size)
    if start == size:
        return
    file.seek(start)
    if file.read(len(BEGINNING)) == BEGINNING[: size - start]:
        file.truncate(start)
    else:
        file.seek(0, os.SEEK_END)
        _write(file, b"\n")


def _last_line(file: BinaryIO, size: int) -> int:
    """The offset of the text behind the last line's end."""
    end = size
    while end:
        start = max(0, end - _CHUNK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _digest(path: Path, end: int) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(min(end, _HEAD))).hexdigest()


#: What stands for the app's configured queue.
APP: Final = "app"
#: How a queue may be named, for --help.
NAMES: Final = f"'{APP}', or {FORMS}."


def find_place(name: str, app_name: str | None) -> QueuePlace:
    """The place that *name* means, without opening its queue."""
    if name != APP:
        return read_url(name)
    ops = load_application(app_name)
    found = [
        place_of(one, ops.settings.dlq, ops.broker_url)
        for one in places(ops.settings, ops.broker_url)
    ]
    # Its spool is no queue that is read, but what is put there comes to its queues.
    shown = " or ".join(one.shown for one in found if one.backend != SPOOL)
    return replace(
        found[0],
        shown=f"the app's queue ({shown})",
        spots=frozenset().union(*(one.spots for one in found)),
    )


@contextmanager
def opened_queue(
    name: str, place: QueuePlace, app_name: str | None, *, group: str | None = None
) -> Iterator[DeadLetterQueue]:
    """Open *place*, which *name* means; what it holds goes back when the block is left."""
    if name == APP:
        ops = load_application(app_name)
        queue = open_unprotected(ops.settings, ops.broker_url)  # a signature vouches for its writer
    elif place.backend == SPOOL:
        queue = open_queue(place.spool(), create_missing=place.create_missing)
    else:
        changes = {"kafka_group": group} if group else {}
        queue = open_backend(place.backend, place.settings(**changes), "")
    try:
        yield queue
    finally:
        queue.close()


def check_two_places(source: QueuePlace, target: QueuePlace) -> None:
    """Refuse to move letters round in a circle."""
    if source.spots & target.spots:
        msg = f"--from and --to are one place, {target.shown}: letters would go round for ever"
        if SPOOL in (source.backend, target.backend) and source.backend != target.backend:
            msg += "; `angzarr dlq spool forward` takes letters out of an app's own spool"
        raise click.UsageError(msg)


def chosen_domains(
    domains: Sequence[str], *, all_domains: bool, app_name: str | None
) -> Sequence[str]:
    """The domains that a person named, each once."""
    if bool(domains) == all_domains:
        msg = "choose letters with --domain (repeatable) or --all-domains of the app"
        raise click.UsageError(msg)
    found = load_application(app_name).dead_letter_domains() if all_domains else domains
    by_queue: dict[str, str] = {}
    for domain in found:
        other = by_queue.setdefault(queue_name(domain), domain)
        if other != domain:
            msg = f"domains {other!r} and {domain!r} share the queue {queue_name(domain)}: name one"
            raise click.UsageError(msg)
    return list(by_queue.values())
