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
    PayloadCollector,
    PayloadCount,
    PayloadState,
    RegisteredPayload,
    unregistered,
)
from angzarr.runtime.text import span_text
from angzarr.wiring.analysis_worker import person

#: What each state means to a person.
_MEANINGS = {
    PayloadState.HELD: "a message, a letter or an entry needs it",
    PayloadState.FREE: "nothing holds it; it is deleted after the grace period",
    PayloadState.CONDEMNED: "it is being deleted",
}
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
    """Count the registered bodies, and their bytes, by state."""
    with closing(load_application(app_name).open_payload_collector()) as collector:
        counts = collector.register.count()
    if as_json:
        print_json({state.value: counts[state]._asdict() for state in PayloadState})
        return
    table = Table("state", "bodies", "bytes", "means")
    for state in PayloadState:
        bodies, size = counts[state]
        table.add_row(state.value, f"{bodies:,}", f"{size:,}", _MEANINGS[state])
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
    _show(found, as_json=as_json)


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
            _show(collector.due(), as_json=as_json)
            _show_unregistered(collector, before)
            return
        if before is not None and not yes:
            msg = "Delete bodies of which nothing knows who needs them?"
            click.confirm(msg, abort=True, err=True)
        collector.collect()
        others = PayloadCount() if before is None else _delete_unregistered(collector, before)
    account = collector.account
    told = {
        "deleted": account.bodies,
        "bytes": account.bytes,
        "held_too_long": account.held_too_long,
        "elsewhere": account.elsewhere,
        "unregistered": others.bodies,
        "unregistered_bytes": others.bytes,
    }
    if account.bodies or others.bodies:
        ops.acts.record(ActKind.PAYLOADS_DELETED, "payloads", by=person(), data=told)
    if as_json:
        print_json(told)
        return
    click.echo(f"deleted {account.bodies:,} bodies, {account.bytes:,} bytes")
    if account.held_too_long:
        click.echo(f"{account.held_too_long:,} of them were held for longer than payloads.keep")
    if account.elsewhere:
        click.echo(f"{account.elsewhere:,} bodies are in other payload stores than this app's")
    if before is not None:
        click.echo(f"deleted {others.bodies:,} unregistered bodies, {others.bytes:,} bytes")


def _delete_unregistered(collector: PayloadCollector, before: datetime) -> PayloadCount:
    bodies = size = 0
    for one in unregistered(collector.store, collector.register, before):
        collector.store.delete(one.uri)
        bodies, size = bodies + 1, size + one.size
    return PayloadCount(bodies, size)


def _show_unregistered(collector: PayloadCollector, before: datetime | None) -> None:
    if before is None:
        return
    bodies = size = 0
    for one in unregistered(collector.store, collector.register, before):
        bodies, size = bodies + 1, size + one.size
    click.echo(f"{bodies:,} unregistered bodies, {size:,} bytes", err=True)


def _show(found: Iterable[RegisteredPayload], *, as_json: bool) -> None:
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
        click.echo("no bodies")


def _told(one: RegisteredPayload) -> dict[str, Any]:
    return {
        "uri": one.uri,
        "bytes": one.size,
        "state": one.state.value,
        "seconds": round(one.since.total_seconds(), 3),
        "holders": one.holders,
        "holder": one.holder or None,
    }
