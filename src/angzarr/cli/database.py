"""angzarr database, angzarr books: the SQL tables of an app, and pruning of its event books."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import click

from angzarr.cli.application import load_application
from angzarr.cli.saga import opened_stores
from angzarr.cli.terminal import JSON, print_json
from angzarr.clock import SystemClock
from angzarr.errors import AngzarrError
from angzarr.facts.act import ActKind
from angzarr.maintenance.retention import Removal
from angzarr.maintenance.schema_versions import Revision, SchemaStanding, TablesUpkeep
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.event_store import removals
from angzarr.wiring.ledger import NAMES
from angzarr.wiring.operations import Operations

_SAYS: Final[Mapping[SchemaStanding, str]] = {
    SchemaStanding.MISSING: "no tables yet; they are made when {name} is first used",
    SchemaStanding.BEHIND: "behind; `angzarr {cure}` brings it there",
    SchemaStanding.CURRENT: "as this release needs it",
    SchemaStanding.NEWER: "of a newer release, which alone can use it",
}


def standing_text(found: Revision, *, name: str, cure: str) -> str:
    """Say where tables stand, and what brings them to where they should be."""
    return _SAYS[found.standing].format(name=name, cure=cure)


def version_text(found: Revision, *, name: str, cure: str) -> str:
    """Say which revision tables have."""
    return f"{found.found or 'none'}: {standing_text(found, name=name, cure=cure)}"


def upgraded_text(before: Revision) -> str:
    """Say what an upgrade of tables that were at *before* did."""
    if before.standing is SchemaStanding.CURRENT:
        return f"{before.needed}: nothing to do"
    return f"upgraded from {before.found or 'nothing'} to {before.needed}"


def recorded_upgrade(ops: Operations, name: str, upkeep: TablesUpkeep) -> Revision:
    """Upgrade the tables *name*, and say in the facts that it begins and how it ended.

    Return what they were. The table of facts cannot take the facts of its own beginning.
    """
    if name == _FACTS:
        before = upkeep.upgrade()
        if before.standing is not SchemaStanding.CURRENT:
            told = _upgraded(name, before)
            ops.acts.record(ActKind.TABLES_UPGRADED, name, by=person(), data=told)
        return before
    with ops.acts.recording(ActKind.TABLES_UPGRADED, name, by=person()) as act:
        before = upkeep.upgrade()
        if before.standing is not SchemaStanding.CURRENT:
            act.done(_upgraded(name, before))
    return before


def _upgraded(name: str, before: Revision) -> dict[str, str | None]:
    return {"tables": name, "before": before.found or None, "now": before.needed}


def differences_of(upkeep: TablesUpkeep, found: Revision, *, name: str, cure: str) -> list[str]:
    """The differences of tables from this release; those at another revision differ as a whole."""
    if found.standing is SchemaStanding.CURRENT:
        return list(upkeep.differences())
    return [standing_text(found, name=name, cure=cure)]


def revision_json(revision: Revision) -> dict[str, str | None]:
    """A revision for programs."""
    return {
        "revision": revision.found or None,
        "needed": revision.needed,
        "standing": revision.standing.value,
    }


#: The schema whose table the facts of upgrades go to: it is upgraded first.
_FACTS: Final = "facts"
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

    def version_of(name: str, upkeep: TablesUpkeep) -> str:
        found = upkeep.revision()
        shown[name] = revision_json(found)
        return version_text(found, **_said(name))

    _each(app_name, names, shown, version_of, as_json=as_json)


@database.command()
@SCHEMAS
@JSON
@click.pass_obj
def upgrade(app_name: str | None, *, names: tuple[str, ...], as_json: bool) -> None:
    """Bring the tables to what this release needs; workers may go on meanwhile.

    Those that cannot be upgraded keep no others from it; exit code 1 if there are any.
    """
    shown: dict[str, Any] = {}
    ops = load_application(app_name)

    def upgraded(name: str, upkeep: TablesUpkeep) -> str:
        before = recorded_upgrade(ops, name, upkeep)
        shown[name] = revision_json(before) | {"now": before.needed}
        return upgraded_text(before)

    _each(app_name, names, shown, upgraded, first=_FACTS, as_json=as_json)


@database.command()
@SCHEMAS
@JSON
@click.pass_obj
def check(app_name: str | None, *, names: tuple[str, ...], as_json: bool) -> None:
    """Tell how the tables differ from what this release expects; exit code 1 if they do."""
    shown: dict[str, Any] = {}

    def differing(name: str, upkeep: TablesUpkeep) -> str:
        found = upkeep.revision()
        differences = differences_of(upkeep, found, **_said(name))
        shown[name] = revision_json(found) | {"differences": differences}
        return "\n".join(differences) or f"{found.found}: nothing differs"

    _each(app_name, names, shown, differing, as_json=as_json)
    if any(one["differences"] for one in shown.values()):
        raise SystemExit(1)


def _each(
    app_name: str | None,
    names: tuple[str, ...],
    shown: dict[str, Any],
    step: Callable[[str, TablesUpkeep], str],
    *,
    first: str = "",
    as_json: bool,
) -> None:
    """Take *step* for one schema after the other, *first* before all, and show what each says.

    What cannot be done for one keeps no others from it: it is told, and the end is exit code 1.
    """
    openers = load_application(app_name).table_upkeeps(names)
    failed = False
    for name, open_ in sorted(openers.items(), key=lambda one: one[0] != first):
        try:
            with closing(open_()) as upkeep:
                said = step(name, upkeep)
        except AngzarrError as error:
            failed, said = True, printable(error)
            shown[name] = {"error": said}
            click.echo(f"Error: {name}: {said}", err=True)
            continue
        for line in () if as_json else said.splitlines():
            click.echo(f"{name} {printable(line)}")
    if as_json:
        print_json(shown)
    if failed:
        raise SystemExit(1)


def _said(name: str) -> dict[str, str]:
    return {"name": "it", "cure": f"database upgrade {name}"}


@click.group()
def books() -> None:
    """Look after event books."""


@books.command()
@JSON
@click.pass_obj
def prune(app_name: str | None, *, as_json: bool) -> None:
    """Forget decisions and closed rejected commands that are older than the settings keep them.

    Workers that run aggregates do so once an hour. Events stay.
    """
    ops = load_application(app_name)
    removed: dict[str, int] = {}
    with (
        opened_stores(ops) as event_stores,
        ops.acts.recording(ActKind.BOOKS_PRUNED, "books", by=person()) as act,
    ):
        try:
            for removal in removals(event_stores.books, event_stores.rejections, ops.settings):
                for number in _batches(removal):
                    removed[removal.name] = removed.get(removal.name, 0) + number
                if not as_json:
                    click.echo(f"removed {removed[removal.name]:,} {removal.what}")
        finally:
            if any(removed.values()):
                act.done({"removed": removed})
    if as_json:
        print_json(removed)


def _batches(removal: Removal) -> Iterator[int]:
    """Remove a batch after the other until there is none; yield how many rows each was."""
    now, more = SystemClock().now(), True
    while more:
        removed, more = removal.remove(now)
        yield removed
