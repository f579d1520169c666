"""angzarr payload: which bodies are in payload stores, and deleting unneeded ones (spec F4)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import click
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, YES, Moment, console, print_json, safe
from angzarr.facts.act import ActKind
from angzarr.payloads.collector import (
    CollectionAccount,
    PayloadCollector,
    PayloadRegister,
    PayloadState,
    RegisteredPayload,
    unregistered,
)
from angzarr.payloads.holders import PayloadHold
from angzarr.runtime.text import span_text
from angzarr.wiring.analysis_worker import person

#: What each state means to a person.
_MEANINGS = {
    PayloadState.HELD: "a message, a letter or an entry needs it",
    PayloadState.FREE: "nothing holds it; it is deleted after the grace period",
    PayloadState.CONDEMNED: "it is being deleted",
}
#: Holds of one body that are ended at once; those of a body for thousands of events go in turns.
_MOST = 1_000
_LIMIT = click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="How many at most."
)


@click.group()
def payload() -> None:
    """Bodies in payload stores: who needs them, and deleting those that nothing needs."""


@payload.command()
@JSON
@click.pass_obj
def stats(app_name: str | None, *, as_json: bool) -> None:
    """Count the registered bodies, their bytes, and how long the first has been so, by state."""
    with closing(load_application(app_name).open_payload_collector()) as collector:
        register = collector.register
        counts, longest = register.count(), {one: _longest(register, one) for one in PayloadState}
    if as_json:
        print_json(
            {
                one.value: {**counts[one]._asdict(), "longest_seconds": _seconds(longest[one])}
                for one in PayloadState
            }
        )
        return
    table = Table("state", "bodies", "bytes", "for up to", "means")
    for one in PayloadState:
        bodies, size = counts[one]
        span = span_text(longest[one])
        table.add_row(one.value, f"{bodies:,}", f"{size:,}", span, _MEANINGS[one])
    console().print(table)


@payload.command("list")
@click.option("--state", type=click.Choice([state.value for state in PayloadState]),
              default=PayloadState.HELD.value, show_default=True,
              help="Those in this state.")  # fmt: skip
@_LIMIT
@JSON
@click.pass_obj
def list_(app_name: str | None, *, state: str, limit: int, as_json: bool) -> None:
    """List registered bodies, those longest in their state first, with one who holds each."""
    with closing(load_application(app_name).open_payload_collector()) as collector:
        found = collector.register.find(PayloadState(state), timedelta(0), limit=limit)
    _show(found, f"no bodies are {state}: `angzarr payload stats` counts all", as_json=as_json)


@payload.command()
@click.argument("uri")
@_LIMIT
@JSON
@click.pass_obj
def holders(app_name: str | None, uri: str, *, limit: int, as_json: bool) -> None:
    """Name all who hold the body at URI, one a line."""
    with closing(load_application(app_name).open_payload_collector()) as collector:
        found = sorted(_registered(collector, uri).holders_of(uri, limit=limit))
    if as_json:
        print_json(found)
        return
    for one in found or ["nothing holds it"]:
        click.echo(safe(one))


@payload.command()
@click.argument("uri")
@click.option("--holder", "only", multiple=True, help="End this hold only; may be given again.")
@YES
@JSON
@click.pass_obj
def release(
    app_name: str | None, uri: str, *, only: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """End the holds of the body at URI, all of them or some.

    For what a crash or a purged queue left held. A body that nothing holds is deleted after
    `payloads.grace`. A message, letter or entry that needs it after all has lost it then.
    """
    ops = load_application(app_name)
    with closing(ops.open_payload_collector()) as collector:
        register = _registered(collector, uri)
        held = register.holders_of(uri, limit=_MOST)
        unknown = sorted(set(only) - held)
        if unknown and len(held) < _MOST:
            msg = f"{safe(unknown[0])} does not hold it: see `angzarr payload holders`"
            raise click.ClickException(msg)
        ending = sorted(set(only) or held)
        if ending and not yes:
            msg = f"End {len(ending):,} of {len(held):,} holds, even if the body is still needed?"
            click.confirm(msg, abort=True, err=True)
        told: dict[str, Any] = {"uri": uri, "released": ending, "left": len(held)}
        if ending:
            with ops.acts.recording(ActKind.PAYLOAD_RELEASED, "payloads", by=person()) as act:
                register.release([PayloadHold(uri, one) for one in ending])
                told["left"] = len(register.holders_of(uri, limit=_MOST))
                act.done(told)
    if as_json:
        print_json(told)
        return
    click.echo(f"ended {len(ending):,} holds, {told['left']:,} are left")


@payload.command()
@click.option("--dry-run", is_flag=True, help="Show what would go, and delete nothing.")
@click.option("--unregistered-older-than", "before", type=Moment(), metavar="AGE",
              help="Delete unregistered ones that are older, too; 90d: ninety days.")  # fmt: skip
@YES
@JSON
@click.pass_obj
def gc(
    app_name: str | None, *, dry_run: bool, before: datetime | None, yes: bool, as_json: bool
) -> None:
    """Delete the bodies that no message, delayed message, letter or entry can need any more.

    Registered ones go once nothing has held them for `payloads.grace`. What is not registered
    stays, unless you say how old it must be: nothing knows who needs it.
    """
    ops = load_application(app_name)
    with closing(ops.open_payload_collector()) as collector:
        if dry_run:
            _show(collector.due(), "no bodies would be deleted", as_json=as_json)
            _show_unregistered(collector, before)
            return
        if before is not None and not yes:
            msg = "Delete bodies of which nothing knows who needs them?"
            click.confirm(msg, abort=True, err=True)
        with ops.acts.recording(ActKind.PAYLOADS_DELETED, "payloads", by=person()) as act:
            deleted = {"unregistered": 0, "unregistered_bytes": 0}
            try:
                collector.collect()
                if before is not None:
                    _delete_unregistered(collector, before, deleted)
            finally:
                told = _account_json(collector.account) | deleted
                if told["deleted"] or told["unregistered"]:
                    act.done(told)
    if as_json:
        print_json(told)
        return
    click.echo(f"deleted {told['deleted']:,} bodies, {told['bytes']:,} bytes")
    if told["held_too_long"]:
        click.echo(f"{told['held_too_long']:,} of them were held for longer than payloads.keep")
    if told["elsewhere"]:
        click.echo(f"{told['elsewhere']:,} bodies are in other payload stores than this app's")
    if before is not None:
        bodies, size = told["unregistered"], told["unregistered_bytes"]
        click.echo(f"deleted {bodies:,} unregistered bodies, {size:,} bytes")


def _account_json(account: CollectionAccount) -> dict[str, int]:
    """What was deleted of what is registered."""
    return {
        "deleted": account.bodies,
        "bytes": account.bytes,
        "held_too_long": account.held_too_long,
        "elsewhere": account.elsewhere,
    }


def _longest(register: PayloadRegister, state: PayloadState) -> timedelta:
    """For how long the first of the bodies in *state* has been there; zero: there is none."""
    first = register.find(state, timedelta(0), limit=1)
    return first[0].since if first else timedelta(0)


def _seconds(span: timedelta) -> float:
    return round(span.total_seconds(), 3)


def _registered(collector: PayloadCollector, uri: str) -> PayloadRegister:
    """The register, which knows the body at *uri*."""
    if uri in collector.register.known([uri]):
        return collector.register
    msg = f"no body is registered at {safe(uri)}: see `angzarr payload list`"
    raise click.ClickException(msg)


def _delete_unregistered(
    collector: PayloadCollector, before: datetime, deleted: dict[str, int]
) -> None:
    """Delete them, and count in *deleted* those that are gone, also where it fails."""
    for one in unregistered(collector.store, collector.register, before):
        collector.store.delete(one.uri)
        deleted["unregistered"] += 1
        deleted["unregistered_bytes"] += one.size


def _show_unregistered(collector: PayloadCollector, before: datetime | None) -> None:
    if before is None:
        return
    bodies = size = 0
    for one in unregistered(collector.store, collector.register, before):
        bodies, size = bodies + 1, size + one.size
    click.echo(f"{bodies:,} unregistered bodies, {size:,} bytes", err=True)


def _show(found: Iterable[RegisteredPayload], none: str, *, as_json: bool) -> None:
    if as_json:
        print_json([_told(one) for one in found])
        return
    table = Table("body", "bytes", "state", "for", "held by")
    for one in found:
        more = f" and {one.holders - 1:,} more" if one.holders > 1 else ""
        table.add_row(
            safe(one.uri),
            f"{one.size:,}",
            one.state.value,
            span_text(one.since),
            safe(one.holder + more),
        )
    if table.row_count:
        console().print(table)
    else:
        click.echo(none)


def _told(one: RegisteredPayload) -> dict[str, Any]:
    return {
        "uri": one.uri,
        "bytes": one.size,
        "state": one.state.value,
        "seconds": _seconds(one.since),
        "holders": one.holders,
        "holder": one.holder or None,
    }
