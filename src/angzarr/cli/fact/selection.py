"""Which facts a command is about, and the store in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final, TypeVar

import click

from angzarr.cli.application import load_application
from angzarr.cli.terminal import Moment
from angzarr.facts.query import FactOrder, FactPage, FactQuery, FactReader

_F = TypeVar("_F", bound=Callable[..., Any])

_FILTERS: Final = (
    click.option("--type", "type", help="Type: error, lifecycle, cost, …"),
    click.option("--subtype", help="Subtype: handled, transient, max_retries_exceeded, …"),
    click.option("--handler", "--tool", "tool_id", help="Name of the handler."),
    click.option("--tenant", "tenant_id", help="Tenant of the event."),
    click.option("--entity", "entity_id", help="Root of the aggregate."),
    click.option("--event", "event_id", help="Id of the event."),
    click.option("--trace", "trace_id", help="Trace id, 32 hexadecimal digits."),
    click.option("--asset", "asset_id", help="What the handler worked on."),
    click.option("--since", type=Moment(), help="Happened at or after; 2h: two hours ago."),
    click.option("--until", type=Moment(), help="Happened before."),
)


#: Where `--by` names what is counted, it is `--person` alone.
_PERSON: Final = "Who acted, like ann@desk."


def filtered(command: _F) -> _F:
    """Give *command* the options of `FactQuery`, under the names of its fields."""
    return _narrowed(click.option("--by", "--person", "by", help=_PERSON)(command))


def counted(command: _F) -> _F:
    """Give *command* the same, with `--person` for who acted."""
    return _narrowed(click.option("--person", "person", help=_PERSON)(command))


def _narrowed(command: _F) -> _F:
    """Give *command* the options of all fields but of who acted."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@contextmanager
def opened_reader(app_name: str | None) -> Iterator[FactReader]:
    """Open the facts of an app for a block."""
    with closing(load_application(app_name).open_fact_store()) as store:
        yield store


def page_of(
    reader: FactReader, wanted: FactQuery, *, order: FactOrder, limit: int, after: str
) -> FactPage:
    """A page of facts; raises click.UsageError for an invalid cursor."""
    try:
        return reader.find(wanted, order=order, limit=limit, after=after)
    except ValueError as error:
        msg = f"{after!r} is not a cursor: pass the one that the page before printed"
        raise click.UsageError(msg) from error
