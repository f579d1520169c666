"""angzarr fleet: which workers run, and which releases they run (spec A3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

import click
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, console, print_json, safe
from angzarr.fleet import FleetRelease, Member
from angzarr.runtime.text import ago

#: Stands for a release without a name.
_UNNAMED: Final = "-"


@click.group()
def fleet() -> None:
    """Workers of the fleet and the releases that they run."""


@fleet.command("list")
@JSON
@click.pass_obj
def list_(app_name: str | None, *, as_json: bool) -> None:
    """List the workers that run now."""
    members = load_application(app_name).fleet().members()
    if as_json:
        print_json([asdict(member) for member in members])
    elif members:
        console().print(_members(list(members), datetime.now(UTC)))
    else:
        click.echo("no worker runs")


@fleet.command()
@JSON
@click.pass_obj
def releases(app_name: str | None, *, as_json: bool) -> None:
    """List the releases that workers ran within 90 days, the newest first."""
    door = load_application(app_name).fleet()
    running = Counter(member.release for member in door.members())
    found = list(reversed(door.releases()))
    if as_json:
        print_json([asdict(one) | {"workers": running[one.name]} for one in found])
    elif found:
        console().print(_releases(found, running, datetime.now(UTC)))
    else:
        click.echo("no release was seen: workers name theirs in the variable ANGZARR_RELEASE")


def _members(members: list[Member], now: datetime) -> Table:
    table = Table("worker", "release", "pool", "queues", "handlers", "began")
    for one in members:
        table.add_row(
            safe(f"{one.host}:{one.pid}"),
            safe(one.release or _UNNAMED),
            safe(one.pool),
            safe(", ".join(one.queues)),
            str(len(one.handlers)),
            safe(ago(one.started_at, now)),
        )
    return table


def _releases(found: list[FleetRelease], running: Counter[str], now: datetime) -> Table:
    table = Table("release", "first seen", "last seen", "workers now")
    for one in found:
        workers = running[one.name]
        last = "now" if workers else ago(one.last_seen_at, now)
        first = ago(one.first_seen_at, now)
        table.add_row(safe(one.name), safe(first), safe(last), str(workers))
    return table
