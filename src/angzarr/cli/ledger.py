"""angzarr ledger: its tables (upgrade them, check them, count anew), and all that is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from angzarr.analysis.ledger.upkeep import LedgerUpkeep
from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON
from angzarr.cli.ledger_export import export
from angzarr.cli.revision_view import differences_of, revision_json, upgraded_text, version_text
from angzarr.cli.standard_output import print_json
from angzarr.runtime.text import printable

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
        before = upkeep.upgrade()
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
    """Compare the counts of groups with their entries and mend those that are wrong.

    Workers go on meanwhile. With --dry-run the exit code is 1 if a count is wrong.
    """
    groups, wrong = 0, list[str]()
    with _opened(app_name) as upkeep:
        for step in upkeep.recount(mend=not dry_run):
            groups += step.groups
            wrong += step.wrong
            if step.wrong and not as_json:
                click.echo("\n".join(printable(name) for name in step.wrong))
    if as_json:
        print_json({"groups": groups, "wrong": wrong, "mended": not dry_run})
    else:
        done = "wrong" if dry_run else "mended"
        click.echo(f"{groups:,} groups, {len(wrong):,} {done}")
    if dry_run and wrong:
        raise SystemExit(1)


@contextmanager
def _opened(app_name: str | None) -> Iterator[LedgerUpkeep]:
    upkeep = load_application(app_name).open_ledger_upkeep()
    try:
        yield upkeep
    finally:
        upkeep.close()
