"""angzarr health: asks a process of this machine how it does, without importing any app."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

import click

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
    """The answer: its status, and its content; raises ClickException."""
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
