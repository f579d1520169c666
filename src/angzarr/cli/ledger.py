"""angzarr ledger: upgrade and check its tables, recount its groups, and export its entries.

An exported file gets its name only when it is complete.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from angzarr.adapters.files.whole_files import opened
from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.export import Format, entry_lines, letter_lines
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.upkeep import LedgerUpkeep
from angzarr.analysis.replay.bulk_actions import in_status
from angzarr.cli.application import load_application
from angzarr.cli.database import (
    differences_of,
    recorded_upgrade,
    revision_json,
    upgraded_text,
    version_text,
)
from angzarr.cli.dlq.letters_move import Tell, progress
from angzarr.cli.dlq.selection import STATUS, filter_of, filtered, opened_ledger, status_of
from angzarr.cli.terminal import JSON, ByteSink, print_json, standard_output
from angzarr.facts.act import ActKind
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person, stopped_by_signal


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file for its owner alone that is called *path* once the block ends well.

    A file that exists is never replaced. A process that is killed leaves a `.NAME.….part`.
    """
    if path.exists():
        raise _refused(path, "it exists; name another")
    try:
        handle, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            _settle(file)
        _rename(part, path)
    except FileExistsError as error:
        raise _refused(path, "it exists by now; name another") from error
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def _settle(file: BinaryIO) -> None:
    """Wait until the disk has *file*."""
    file.flush()
    os.fsync(file.fileno())


def _rename(part: Path, path: Path) -> None:
    """Give *part* the name *path*, unless that exists already; raises FileExistsError."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(path) from None
        part.rename(path)
    with suppress(OSError), opened(path.parent) as folder:  # the name too, where the system can
        os.fsync(folder)


def _refused(path: Path, why: str) -> click.ClickException:
    return click.ClickException(f"{path} cannot be written: {why}")


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
    with opened_ledger(load_application(app_name)) as ledger, stopped_by_signal() as stop:
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


def _write(file: ByteSink, lines: Iterable[bytes]) -> int:
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


#: Wrong counts that a fact names.
_TOLD: Final = 20
#: As what is said of revisions names it.
_SAID: Final[Mapping[str, str]] = {"name": "the ledger", "cure": "ledger upgrade"}


@click.group()
def ledger() -> None:
    """Look after the ledger: revision of its tables, upgrades, checks, counts, export."""


ledger.add_command(export)


@ledger.command()
@JSON
@click.pass_obj
def version(app_name: str | None, *, as_json: bool) -> None:
    """Show the revision of the tables and the one that this release needs."""
    with _opened(app_name) as upkeep:
        found = upkeep.revision()
    if as_json:
        print_json(revision_json(found))
    else:
        click.echo(version_text(found, **_SAID))


@ledger.command()
@JSON
@click.pass_obj
def upgrade(app_name: str | None, *, as_json: bool) -> None:
    """Bring the tables to what this release needs; workers may go on meanwhile."""
    with _opened(app_name) as upkeep:
        before = recorded_upgrade(load_application(app_name), "ledger", upkeep)
    if as_json:
        print_json(revision_json(before) | {"now": before.needed})
    else:
        click.echo(upgraded_text(before))


@ledger.command()
@JSON
@click.pass_obj
def check(app_name: str | None, *, as_json: bool) -> None:
    """Tell how the tables differ from what this release expects; exit code 1 if they do."""
    with _opened(app_name) as upkeep:
        found = upkeep.revision()
        differences = differences_of(upkeep, found, **_SAID)
    if as_json:
        print_json(revision_json(found) | {"differences": differences})
    else:
        click.echo("\n".join(map(printable, differences)) or f"{found.found}: nothing differs")
    if differences:
        raise SystemExit(1)


@ledger.command()
@click.option("--dry-run", is_flag=True, help="Only tell what is not counted as it is.")
@JSON
@click.pass_obj
def recount(app_name: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Compare the counts of groups with their entries and correct wrong ones.

    Workers go on meanwhile. With --dry-run the exit code is 1 if a count is wrong.
    """
    groups, wrong = 0, list[str]()
    with _opened(app_name) as upkeep, ExitStack() as recorded:
        tell = _tell_nothing if dry_run else recorded.enter_context(_recounting(app_name))
        for step in upkeep.recount(fix=not dry_run):
            groups += step.groups
            wrong += step.wrong
            if step.wrong and not as_json:
                click.echo("\n".join(printable(name) for name in step.wrong))
        tell(groups, wrong)
    if as_json:
        print_json({"groups": groups, "wrong": wrong, "mended": not dry_run})
    else:
        done = "wrong" if dry_run else "mended"
        click.echo(f"{groups:,} groups, {len(wrong):,} {done}")
    if dry_run and wrong:
        raise SystemExit(1)


@contextmanager
def _recounting(app_name: str | None) -> Iterator[Callable[[int, Sequence[str]], None]]:
    """Say in the facts that groups are counted anew, and which counts were wrong, if any."""
    acts = load_application(app_name).acts
    with acts.recording(ActKind.LEDGER_RECOUNTED, "ledger", by=person()) as act:

        def tell(groups: int, wrong: Sequence[str]) -> None:
            if wrong:
                act.done({"groups": groups, "wrong": len(wrong), "first": wrong[:_TOLD]})

        yield tell


def _tell_nothing(_groups: int, _wrong: Sequence[str]) -> None:
    """Leave no fact: it was a dry run."""


@contextmanager
def _opened(app_name: str | None) -> Iterator[LedgerUpkeep]:
    upkeep = load_application(app_name).open_ledger_upkeep()
    try:
        yield upkeep
    finally:
        upkeep.close()
