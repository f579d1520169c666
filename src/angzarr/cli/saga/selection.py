"""Which cases a command is about: by how an id begins, or by a filter, a page at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.cli.application import load_application
from angzarr.cli.dlq.entry_view import SHORT_ID
from angzarr.cli.dlq.selection import SHORTEST_ID
from angzarr.runtime.text import printable
from angzarr.sagas import log as pages
from angzarr.sagas.log import MAX_FLOW, Case, CaseFilter, Page, RejectionLog, RejectionStatus
from angzarr.sagas.story import EventStores
from angzarr.wiring.application import Application

_F = TypeVar("_F", bound=Callable[..., Any])

#: Of so many of the newest cases ids are completed.
_OFFERED: Final = 200


def _short(_ctx: click.Context, _option: click.Parameter, note: str) -> str:
    if len(note) > LONGEST_NOTE:
        msg = f"a note has at most {LONGEST_NOTE} characters"
        raise click.BadParameter(msg)
    return note


NOTE: Final = click.option("--note", default="", callback=_short, help="Why; `show` tells it.")
_FILTERS: Final = (
    click.option("--saga", help="Name of the saga or process manager that sent the command."),
    click.option("--domain", help="Domain of the source, which is to compensate."),
    click.option("--status", type=click.Choice([one.value for one in RejectionStatus])),
    click.option("--correlation", "--correlation-id", "correlation_id",
                 help="Correlation id of the chain."),
)  # fmt: skip


def filtered(command: _F) -> _F:
    """Give *command* the options that `wanted_of` reads."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def wanted_of(options: dict[str, Any]) -> CaseFilter:
    """Return the filter that *options* name."""
    status, flow = options.pop("status"), options.pop("correlation_id")
    return CaseFilter(
        status=RejectionStatus(status) if status else None,
        correlation_id=flow and flow[:MAX_FLOW],  # a case has no more of it
        **options,
    )


@contextmanager
def opened(app: Application) -> Iterator[EventStores]:
    """Open the event books and cases of *app* for a block."""
    with closing(app.open_shelves()) as shelves:
        yield shelves


def page_of(log: RejectionLog, wanted: CaseFilter, *, limit: int, after: str) -> Page:
    """Return a page of cases; raises click.UsageError for a cursor that is none."""
    try:
        return pages.page_of(log, wanted, limit=limit, after=after)
    except ValueError as error:
        msg = f"{after!r} is not a cursor: pass the one that the page before printed"
        raise click.UsageError(msg) from error


def find(log: RejectionLog, beginning: str) -> Case:
    """Return the one case whose id begins so; refuses none, several, and too short ones."""
    if len(beginning) < SHORTEST_ID:
        msg = f"{beginning!r} is too short: give at least {SHORTEST_ID} characters of the id"
        raise click.UsageError(msg)
    found = log.look(beginning) or log.look(beginning.lower())
    if not found:
        msg = f"there is no case {beginning!r}; `angzarr saga list` shows them"
        raise click.ClickException(msg)
    if len(found) > 1:
        msg = f"several cases begin with {beginning!r}: give more of the id"
        raise click.UsageError(msg)
    return found[0]


def case_ids(ctx: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return newer cases whose id begins as *typed*; a log that cannot be asked offers none."""
    named = ctx.find_root().params.get("app_name") or os.environ.get("ANGZARR_APP")
    try:
        with opened(load_application(named)) as shelves:
            cases = shelves.rejections.cases(CaseFilter(), limit=_OFFERED)
    except Exception:  # noqa: BLE001 - a prompt is no place for an error
        return []
    return [
        CompletionItem(one.id[:SHORT_ID], help=printable(f"{one.status} {one.command_type}"))
        for one in cases
        if one.id.startswith(typed.lower())
    ]
