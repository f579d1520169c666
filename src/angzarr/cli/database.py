"""angzarr database: the tables of all that an app keeps in SQL, by the names of their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON
from angzarr.cli.revision_view import differences_of, revision_json, upgraded_text, version_text
from angzarr.cli.standard_output import print_json
from angzarr.maintenance.schema_versions import TablesUpkeep
from angzarr.runtime.text import printable
from angzarr.wiring.schemas import NAMES

#: Which schemas; without any all that the app has a database for.
SCHEMAS = click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(NAMES))


@click.group()
def database() -> None:
    """Look after tables, of all schemas or of those named: revisions, upgrades, checks."""


@database.command()
@SCHEMAS
@JSON
@click.pass_obj
def version(app_name: str | None, *, names: tuple[str, ...], as_json: bool) -> None:
    """Show the revision of the tables and the one that this release needs."""
    shown: dict[str, Any] = {}
    for name, upkeep in _opened(app_name, names):
        found = upkeep.revision()
        shown[name] = revision_json(found)
        if not as_json:
            click.echo(f"{name} {version_text(found, **_said(name))}")
    _print(shown, as_json=as_json)


@database.command()
@SCHEMAS
@JSON
@click.pass_obj
def upgrade(app_name: str | None, *, names: tuple[str, ...], as_json: bool) -> None:
    """Bring the tables to what this release needs; workers may go on meanwhile.

    The first that cannot be upgraded ends it; those before it stay upgraded.
    """
    done: dict[str, Any] = {}
    for name, upkeep in _opened(app_name, names):
        before = upkeep.upgrade()
        done[name] = revision_json(before) | {"now": before.needed}
        if not as_json:
            click.echo(f"{name} {upgraded_text(before)}")
    _print(done, as_json=as_json)


@database.command()
@SCHEMAS
@JSON
@click.pass_obj
def check(app_name: str | None, *, names: tuple[str, ...], as_json: bool) -> None:
    """Tell how the tables differ from what this release expects; exit code 1 if they do."""
    shown: dict[str, Any] = {}
    for name, upkeep in _opened(app_name, names):
        found = upkeep.revision()
        differences = differences_of(upkeep, found, **_said(name))
        shown[name] = revision_json(found) | {"differences": differences}
        for line in () if as_json else differences or [f"{found.found}: nothing differs"]:
            click.echo(f"{name} {printable(line)}")
    _print(shown, as_json=as_json)
    if any(one["differences"] for one in shown.values()):
        raise SystemExit(1)


def _opened(app_name: str | None, names: tuple[str, ...]) -> Iterator[tuple[str, TablesUpkeep]]:
    """Open the upkeep of one schema after the other."""
    for name, open_ in load_application(app_name).table_upkeeps(names).items():
        with closing(open_()) as upkeep:
            yield name, upkeep


def _said(name: str) -> dict[str, str]:
    return {"name": "it", "cure": f"database upgrade {name}"}


def _print(shown: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(shown)
