"""angzarr config: versions of configurations that never change, and which one is current (F3)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import IO, Any

import click
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, console, moment, print_json, safe
from angzarr.configuration.editor import ConfigurationEditor
from angzarr.configuration.version import ConfigurationVersion, VersionInfo, check_id, no_version
from angzarr.facts.act import ActKind
from angzarr.facts.act_log import RunningAct
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.configuration import editor_of
from angzarr.wiring.operations import Operations

_ID = click.argument("id_", metavar="ID")
_NOTE = click.option("--note", default="", help="Why, for the history.")
_BY = click.option("--by", help="Who does it; by default the user at the keyboard.")


@click.group()
def config() -> None:
    """Configurations that handlers read: immutable versions, and the current one."""


@config.command()
@_ID
@click.argument("file", type=click.File("rb"))
@click.option("--schema", type=click.File("rb"), help="A JSON schema that the value must keep.")
@click.option("--no-schema", is_flag=True, help="Drop the schema of the version before.")
@click.option("--version", help="The name of the version; by default the next number.")
@_NOTE
@_BY
@JSON
@click.pass_obj
def put(
    app_name: str | None,
    *,
    id_: str,
    file: IO[bytes],
    schema: IO[bytes] | None,
    no_schema: bool,
    version: str | None,
    note: str,
    by: str | None,
    as_json: bool,
) -> None:
    """Put the JSON in FILE (- reads standard input) as a new version of ID; it becomes current.

    Events that are pinned already keep their version. The schema of the version before goes on.
    """
    if schema is not None and no_schema:
        raise click.UsageError("--schema and --no-schema exclude each other: give one")
    who = person() if by is None else by
    ops = load_application(app_name)
    value, rules = file.read(), None if schema is None else schema.read()
    recording = _recording(ops, ActKind.CONFIGURATION_PUT, id_, by=who, note=note)
    with _editor(ops) as editor, recording as act:
        answer = editor.put(
            id_,
            value,
            schema=rules,
            no_schema=no_schema,
            version=version,
            author=who,
            note=note,
        )
        info = answer.version.info
        if answer.fresh:
            _done(act, id_, info.version)
    if as_json:
        print_json(info_json(info) | {"fresh": answer.fresh})
    elif answer.fresh:
        click.echo(f"{info.id} {info.version} is put, and current")
    else:
        click.echo(f"{info.id} {info.version} has this value already: nothing was put")


@config.command()
@_ID
@click.option("--version", help="Which version; by default the current one.")
@JSON
@click.pass_obj
def get(app_name: str | None, *, id_: str, version: str | None, as_json: bool) -> None:
    """Print the value of ID as JSON; --json prints all of the version around it."""
    with _opened(app_name) as editor:
        found = editor.get(id_, version)
    if as_json:
        print_json(info_json(found.info) | {"value": found.value, "schema": found.schema})
    else:
        print_json(found.value)


@config.command("list")
@JSON
@click.pass_obj
def list_(app_name: str | None, *, as_json: bool) -> None:
    """List all configurations with their current versions."""
    with _opened(app_name) as editor:
        store = editor.store
        current = [one for name in store.ids() if (one := store.current(name)) is not None]
    if as_json:
        print_json([info_json(one.info) for one in current])
    elif current:
        console().print(_table([one.info for one in current]))
    else:
        click.echo("no configuration was put yet: angzarr config put <id> <file>")


@config.command()
@_ID
@JSON
@click.pass_obj
def versions(app_name: str | None, *, id_: str, as_json: bool) -> None:
    """List the versions of ID, the newest first, and which of them is current."""
    with _opened(app_name) as editor:
        infos = editor.store.versions(check_id(id_))
        current = editor.get(id_).version if infos else ""
    if as_json:
        print_json([info_json(one) | {"current": one.version == current} for one in infos[::-1]])
    elif infos:
        console().print(_table(infos[::-1], current=current))
    else:
        raise no_version(id_)


@config.command()
@_ID
@JSON
@click.pass_obj
def history(app_name: str | None, *, id_: str, as_json: bool) -> None:
    """List when which version of ID became the current one, the last first."""
    with _opened(app_name) as editor:
        choices = editor.store.choices(check_id(id_))[::-1]
    if as_json:
        print_json(
            [
                {"version": one.version, "how": _how(put=one.put), "by": one.act.author,
                 "at": one.act.at, "note": one.act.note}
                for one in choices
            ]
        )  # fmt: skip
    elif choices:
        table = Table("version", "how", "by", "at", "note")
        for one in choices:
            act, how = one.act, _how(put=one.put)
            table.add_row(safe(one.version), how, safe(act.author), moment(act.at), safe(act.note))
        console().print(table)
    else:
        raise no_version(id_)


@config.command()
@_ID
@click.argument("before")
@click.argument("after", required=False)
@JSON
@click.pass_obj
def diff(app_name: str | None, *, id_: str, before: str, after: str | None, as_json: bool) -> None:
    """Show how version AFTER of ID, or the current one, differs from BEFORE; exits with 1 if so."""
    with _opened(app_name) as editor:
        old, new = editor.get(id_, before), editor.get(id_, after)
    lines = list(diff_lines(old, new))
    if as_json:
        print_json(
            {"id": id_, "before": old.version, "after": new.version, "differs": bool(lines),
             "diff": lines}
        )  # fmt: skip
    for line in () if as_json else lines or [f"{old.version} and {new.version} have one value"]:
        click.echo(printable(line))
    if lines:
        raise SystemExit(1)


@config.command()
@_ID
@click.argument("version")
@_NOTE
@_BY
@JSON
@click.pass_obj
def pin(
    app_name: str | None, *, id_: str, version: str, note: str, by: str | None, as_json: bool
) -> None:
    """Make VERSION the current one, as a roll-back does: events that are not pinned yet get it.

    It stays so until another version is pinned or put. Events that are pinned keep theirs.
    """
    who = person() if by is None else by
    ops = load_application(app_name)
    recording = _recording(ops, ActKind.CONFIGURATION_PINNED, id_, by=who, note=note)
    with _editor(ops) as editor, recording as act:
        changed = editor.choose(id_, version, author=who, note=note)
        if changed:
            _done(act, id_, version)
    if as_json:
        print_json({"id": id_, "version": version, "changed": changed})
    else:
        said = "is current" if changed else "is current already"
        click.echo(f"{id_} {version} {said}")


def _recording(
    ops: Operations, kind: ActKind, id_: str, *, by: str, note: str
) -> AbstractContextManager[RunningAct]:
    """Say in the facts who changes what is current, before and after it."""
    return ops.acts.recording(kind, id_, by=by, reason=note, config_id=id_)


def _done(act: RunningAct, id_: str, version: str) -> None:
    """Say in the facts which version is current now."""
    act.done({"configuration": id_, "version": version}, config_version=version)


def _opened(app_name: str | None) -> AbstractContextManager[ConfigurationEditor]:
    return _editor(load_application(app_name))


@contextmanager
def _editor(ops: Operations) -> Iterator[ConfigurationEditor]:
    with closing(ops.open_configurations()) as store:
        yield editor_of(store)


def diff_lines(before: ConfigurationVersion, after: ConfigurationVersion) -> Iterator[str]:
    """A unified diff of two values, written as indented, sorted JSON; none where they are one."""
    old, new = (
        json.dumps(one.value, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
        for one in (before, after)
    )
    left, right = (f"{one.info.id} {one.version}" for one in (before, after))
    return difflib.unified_diff(old, new, left, right, lineterm="")


def info_json(info: VersionInfo) -> dict[str, Any]:
    """A version for programs, without its value."""
    return {
        "id": info.id,
        "version": info.version,
        "number": info.number,
        "by": info.act.author,
        "at": info.act.at,
        "note": info.act.note,
        "has_schema": info.has_schema,
    }


def _table(infos: list[VersionInfo], *, current: str | None = None) -> Table:
    first = () if current is not None else ("configuration",)
    table = Table(*first, "version", "by", "at", "schema", "note")
    for one in infos:
        shown = f"{one.version} (current)" if one.version == current else one.version
        table.add_row(
            *(safe(one.id) for _ in first),
            safe(shown),
            safe(one.act.author),
            moment(one.act.at),
            "yes" if one.has_schema else "",
            safe(one.act.note),
        )
    return table


def _how(*, put: bool) -> str:
    return "put" if put else "pinned"
