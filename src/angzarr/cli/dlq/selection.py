"""Which entries and groups of the ledger a command is about: ids, fingerprints or a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from angzarr.analysis.ledger.entry import Entry, FailureClass, Status
from angzarr.analysis.ledger.failure import UNREADABLE
from angzarr.analysis.ledger.group import Group, GroupFilter, Groups, fingerprint_at
from angzarr.analysis.ledger.ledger import EntryFilter, Ledger
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.analysis.replay.bulk_actions import choose
from angzarr.cli.application import entry_ids, load_application
from angzarr.cli.terminal import JSON, YES, Moment
from angzarr.dead_letters.letter import Reason
from angzarr.resilience.category import Category
from angzarr.wiring.operations import Operations


@contextmanager
def opened_groups(app_name: str | None) -> Iterator[Groups]:
    """Open the groups of an app for a block."""
    opened = load_application(app_name).open_groups()
    try:
        yield opened
    finally:
        opened.close()


def find_group(opened: Groups, beginning: str) -> Group:
    """The one group of this address, or whose fingerprint begins so; refuses several."""
    try:
        beginning = fingerprint_at(beginning)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if exact := opened.open_group(beginning):
        return exact
    found = opened.get_groups(GroupFilter(prefix=beginning, open_only=False), limit=2).groups
    if not found:
        msg = (
            f"there is no group {beginning!r} in the ledger; `angzarr dlq groups --all` shows them"
        )
        raise click.ClickException(msg)
    if len(found) > 1:
        msg = f"several groups begin with {beginning!r}: give more of the fingerprint"
        raise click.UsageError(msg)
    return found[0]


def whole_fingerprint(
    ctx: click.Context, _option: click.Parameter, given: str | None
) -> str | None:
    """The fingerprint that an option's value begins, as a filter needs all of it."""
    if not given:
        return given
    with opened_groups(ctx.obj) as opened:
        return find_group(opened, given).fingerprint


_F = TypeVar("_F", bound=Callable[..., Any])

#: A shorter beginning of an id is too easily somebody else's.
SHORTEST_ID: Final = 6

_REASONS: Final = [*(reason.value for reason in Reason), UNREADABLE]
_GROUP: Final = click.option(
    "--group",
    "fingerprint",
    callback=whole_fingerprint,
    help="Fingerprint of the failure, or how it begins.",
)
_FILTERS: Final = (
    click.option("--handler", "handler_name", help="Name of the handler."),
    click.option("--domain", help="Domain of the letter."),
    click.option("--event-type", help="Type of the event."),
    click.option("--event", "event_id", help="Id of the event."),
    _GROUP,
    click.option("--tenant", "tenant_id", help="Id of the tenant."),
    click.option("--correlation", "correlation_id", help="Correlation id of the event."),
    click.option("--root", help="Root of the aggregate that the event is of."),
    click.option("--reason", type=click.Choice(_REASONS), help="Why it became a letter."),
    click.option("--category", type=click.Choice([c.value for c in Category])),
    click.option("--error-type", help="Type of the error, with its module."),
    click.option("--error-code", help="Code of the error."),
    click.option("--release", "version", help="Release of the worker that failed last."),
    click.option("--class", "failure_class", type=click.Choice([c.value for c in FailureClass])),
    click.option("--since", type=Moment(), help="Last failed at or after; 2h: two hours ago."),
    click.option("--until", type=Moment(), help="Last failed before."),
)
STATUS: Final = click.option(
    "--status", type=click.Choice([status.value for status in Status]), help="Status of the entry."
)


def _short(_ctx: click.Context, _option: click.Parameter, note: str) -> str:
    if len(note) > LONGEST_NOTE:
        msg = f"a note has at most {LONGEST_NOTE} characters"
        raise click.BadParameter(msg)
    return note


_BULK: Final = (
    click.argument("entries", nargs=-1, shell_complete=entry_ids),
    *_FILTERS,
    STATUS,
    click.option("--note", default="", callback=_short, help="Why; it stands in the history."),
    click.option(
        "--limit",
        type=click.IntRange(1),
        default=1000,
        show_default=True,
        help="So many at most of a filter: the newest failures.",
    ),
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    YES,
    JSON,
)


def filtered(command: _F) -> _F:
    """Give *command* the options that name a filter."""
    return _with(command, _FILTERS)


def bulk(command: _F) -> _F:
    """Give *command*, which changes entries, what says which ones, why, and how it goes about it.

    Options of the filter and `STATUS` are left to `chosen`.
    """
    return _with(command, _BULK)


def _with(command: _F, options: Sequence[Callable[[_F], _F]]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def opened_ledger(ops: Operations) -> Iterator[Ledger]:
    """Open the ledger of the app for a block."""
    ledger = ops.open_ledger()
    try:
        yield ledger
    finally:
        ledger.close()


def find(ledger: Ledger, beginning: str) -> Entry:
    """The one entry whose id begins so; refuses none, several, and too short ones."""
    if len(beginning) < SHORTEST_ID:
        msg = f"{beginning!r} is too short: give at least {SHORTEST_ID} characters of the id"
        raise click.UsageError(msg)
    wanted = EntryFilter(id_prefix=beginning.lower())
    found = ledger.get_failed_events(wanted, status=None, limit=2).entries
    if not found:
        msg = f"there is no entry {beginning!r} in the ledger; `angzarr dlq list` shows them"
        raise click.ClickException(msg)
    if len(found) > 1:
        msg = f"several entries begin with {beginning!r}: give more of the id"
        raise click.UsageError(msg)
    return found[0]


def chosen(
    ledger: Ledger,
    beginnings: Sequence[str],
    options: dict[str, Any],
    limit: int,
    fits: Callable[[Entry], bool],
) -> list[Entry]:
    """The entries that a person names, by id or by a filter and then only those that *fits* takes.

    At most *limit* by a filter. *options* are the values of `filtered` and `STATUS`.
    """
    if bool(beginnings) == any(options.values()):
        raise click.UsageError("say which: either entries by id, or a filter such as --group")
    if beginnings:
        return [find(ledger, one) for one in dict.fromkeys(beginnings)]
    status = status_of(options["status"])
    wanted = filter_of({name: value for name, value in options.items() if name != "status"})
    return choose(ledger, wanted, status, fits, limit)


def filter_of(options: dict[str, Any]) -> EntryFilter:
    """The filter that *options* name."""
    known = dict(options)
    if known.get("failure_class"):
        known["failure_class"] = FailureClass(known["failure_class"])
    return EntryFilter(**known)


def status_of(name: str | None) -> Status | None:
    """The status that an option names; None: any."""
    return Status(name) if name else None


def over(entry: Entry, cap: int | None, cure: str = "--force sends it") -> str:
    """The reason why *entry* has had its replays, by *cap*, or an empty string."""
    if cap is None or entry.replays < cap:
        return ""
    return f"it was replayed {entry.replays} times (analysis.most_replays): {cure}"
