"""angzarr health: asks a process of this machine how it does, without importing any app.

angzarr fleet: which workers run, and which releases they run (spec A3).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import click
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import console, print_json, safe
from angzarr.fleet import FleetRelease, Member
from angzarr.runtime.text import ago

#: The variables that the process itself is set up by.
PORT: Final = "ANGZARR_HEALTH__PORT"
HOST: Final = "ANGZARR_HEALTH__HOST"
#: Seconds that the process has to answer.
PATIENCE: Final = 3.0
#: The longest answer that is read, in bytes.
_LONGEST: Final = 65_536
#: What a process listens on, and what this one asks for it.
_HERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here
_PATHS: Final = {"live": "/livez", "ready": "/readyz"}


class HealthAddress(NamedTuple):
    """Where a process answers health requests."""

    host: str
    port: int
    #: What stands before the path, for a process behind a proxy.
    before: str = ""


@click.command()
@click.argument("probe", type=click.Choice(list(_PATHS)))
@click.option(
    "--url",
    help=f"Where the process listens, like http://127.0.0.1:8081; by default by {PORT} and {HOST}.",
)
def health(probe: str, url: str | None) -> None:
    """Ask whether the worker, or analysis worker, of this machine is live or ready."""
    place = _place(url)
    status, told = _ask(place, _PATHS[probe])
    said = _said(told)
    if status != 200 or told.get("probe") != probe or told.get("ok") is not True:  # noqa: PLR2004 - OK
        msg = f"not {probe}: {said or f'the answer was {status}'}"
        raise click.ClickException(msg)
    click.echo(f"{probe}: {said}")


def _place(url: str | None) -> HealthAddress:
    if url is None:
        port = os.environ.get(PORT, "")
        if not port:
            msg = f"no port is set: set {PORT}, for the worker as well, or name its --url"
            raise click.ClickException(msg)
        host = os.environ.get(HOST, "")
        return HealthAddress(_HERE.get(host, host), _number(port, PORT))
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port_in_url = parts.port
    except ValueError:
        parts, port_in_url = urlsplit(""), None
    if parts.scheme != "http" or not parts.hostname:
        msg = "--url must be like http://127.0.0.1:8081"
        raise click.ClickException(msg)
    return HealthAddress(parts.hostname, port_in_url or 80, parts.path.rstrip("/"))


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) < 2**16:
        return int(text)
    msg = f"{name} is not a port: set it to a number from 1 to 65535"
    raise click.ClickException(msg)


def _ask(place: HealthAddress, path: str) -> tuple[int, dict[str, Any]]:
    """Return what is answered: its status, and what it tells; raises ClickException."""
    import json
    from http.client import HTTPConnection, HTTPException

    where = f"{place.host} port {place.port}"
    try:
        connection = HTTPConnection(place.host, place.port, timeout=PATIENCE)
        try:
            connection.request("GET", place.before + path)
            answer = connection.getresponse()
            status, body = answer.status, answer.read(_LONGEST)
        finally:
            connection.close()
    except TimeoutError:
        msg = f"{where} did not answer within {PATIENCE:g} s"
        raise click.ClickException(msg) from None
    except (OSError, HTTPException, UnicodeError) as error:
        msg = f"nothing answers on {where}: {error}"
        raise click.ClickException(msg) from None
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    return status, told if isinstance(told, dict) else {}


def _said(told: dict[str, Any]) -> str:
    """Say the conditions that do not hold, else all, each in a few words."""
    from angzarr.runtime.text import printable

    conditions = told.get("conditions")
    known = conditions.items() if isinstance(conditions, dict) else ()
    found = [(name, one) for name, one in known if isinstance(one, dict)]
    wrong = [(name, one) for name, one in found if one.get("ok") is not True]
    parts = (f"{name}: {one.get('says')}" for name, one in wrong or found)
    return str(printable("; ".join(parts)))


_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
#: Stands for a release that nobody named.
_UNNAMED: Final = "-"


@click.group()
def fleet() -> None:
    """Workers of the fleet and the releases that they run."""


@fleet.command("list")
@_JSON
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
@_JSON
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
