"""angzarr dlq: the analysis worker, and what a person can see and do (spec A5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from angzarr.analysis.entry import Entry, EntryDetail, FailureClass, Status
from angzarr.analysis.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import replayable
from angzarr.cli import entry_json, entry_view
from angzarr.cli.analyze import open_replayer, open_worker, person, stopped_by_signal
from angzarr.cli.application import Application, load_application
from angzarr.cli.letters_import import import_
from angzarr.cli.letters_move import export, move
from angzarr.cli.spool import spool
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable

_F = TypeVar("_F", bound=Callable[..., Any])

#: A shorter beginning of an id is too easily somebody else's.
SHORTEST_ID: Final = 6

_FILTERS: Final = (
    click.option("--handler", "handler_name", help="Name of the handler."),
    click.option("--domain", help="Domain of the letter."),
    click.option("--event-type", help="Type of the event."),
    click.option("--event", "event_id", help="Id of the event."),
    click.option("--group", "fingerprint", help="Fingerprint of the failure."),
    click.option("--tenant", "tenant_id", help="Id of the tenant."),
    click.option("--class", "failure_class", type=click.Choice([c.value for c in FailureClass])),
    click.option("--since", type=click.DateTime(), help="Last failed at or after, local time."),
    click.option("--until", type=click.DateTime(), help="Last failed before, local time."),
)
_STATUS: Final = click.option(
    "--status", type=click.Choice([status.value for status in Status]), help="Status of the entry."
)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def _filtered(command: _F) -> _F:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group()
def dlq() -> None:
    """Dead letters: read, understand, replay, move."""


for _command in (move, export, import_, spool):
    dlq.add_command(_command)


@dlq.command()
@click.option("--domain", "domains", multiple=True, help="Read only this domain; repeatable.")
@click.pass_obj
def analyze(app_name: str | None, domains: tuple[str, ...]) -> None:
    """Run the analysis worker until it is stopped (SIGTERM or Ctrl-C)."""
    app = load_application(app_name)
    app.check_analysis()
    with open_worker(app, domains) as worker, stopped_by_signal() as stop:
        click.echo(f"{worker.name} reads {', '.join(worker.domains)}", err=True)
        worker.run(stop)
    click.echo("stopped; what was in hand went back", err=True)


@dlq.command("list")
@_filtered
@_STATUS
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@_JSON
@click.pass_obj
def list_(
    app_name: str | None,
    /,
    *,
    status: str | None,
    limit: int,
    after: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List entries, the one that failed last first."""
    with _ledger(app_name) as ledger:
        try:
            page = ledger.get_failed_events(
                _filter(wanted), status=_status(status), limit=limit, after=after
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        entry_json.print_json(entry_json.page_json(page))
    else:
        entry_view.print_page(page)


@dlq.command()
@click.argument("entry")
@_JSON
@click.pass_obj
def show(app_name: str | None, entry: str, *, as_json: bool) -> None:
    """Show everything about ENTRY (its id, or how it begins)."""
    app = load_application(app_name)
    with _opened(app) as ledger:
        detail = ledger.open(_find(ledger, entry).id)
    if detail is None:
        msg = f"entry {entry} was removed meanwhile"
        raise click.ClickException(msg)
    protection = _protection(app, detail)
    if as_json:
        entry_json.print_json(entry_json.detail_json(detail) | {"protection": protection})
    else:
        entry_view.print_detail(detail, protection)


@dlq.command()
@click.argument("entries", nargs=-1)
@_filtered
@_STATUS
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_JSON
@click.pass_obj
def replay(
    app_name: str | None,
    /,
    entries: tuple[str, ...],
    *,
    status: str | None,
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send ENTRIES, or all that a filter finds, on their road again.

    Exits with 1 if one of them could not be replayed.
    """
    if bool(entries) == bool(status or any(wanted.values())):
        raise click.UsageError("say which: either entries by id, or a filter such as --group")
    with ExitStack() as doors:
        replayer = open_replayer(load_application(app_name), doors)
        chosen = (
            [_find(replayer.ledger, one) for one in dict.fromkeys(entries)]
            if entries
            else _all(replayer.ledger, _filter(wanted), _status(status), limit)
        )
        if chosen and not dry_run and not yes:
            click.confirm(f"Replay {len(chosen)} entries?", abort=True, err=True)
        results: list[tuple[Entry, str]] = []
        try:
            for one in chosen:
                problem = _replay(replayer, one, dry_run=dry_run)
                results.append((one, problem))
        finally:  # who is stopped half-way needs to know what was sent
            _tell(results, dry_run=dry_run, as_json=as_json)
    if any(problem for _, problem in results):
        raise SystemExit(1)


def _tell(results: Sequence[tuple[Entry, str]], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        entry_json.print_json(entry_json.results_json(results))
    else:
        entry_view.print_results(results, dry_run=dry_run)


@dlq.command()
@_JSON
@click.pass_obj
def stats(app_name: str | None, *, as_json: bool) -> None:
    """Count all entries."""
    with _ledger(app_name) as ledger:
        found = ledger.get_failure_stats()
    if as_json:
        entry_json.print_json(entry_json.stats_json(found))
    else:
        entry_view.print_stats(found)


@contextmanager
def _ledger(app_name: str | None) -> Iterator[Ledger]:
    with _opened(load_application(app_name)) as ledger:
        yield ledger


@contextmanager
def _opened(app: Application) -> Iterator[Ledger]:
    ledger = app.open_ledger()
    try:
        yield ledger
    finally:
        ledger.close()


def _protection(app: Application, detail: EntryDetail) -> dict[str, str]:
    """Return what is known of who wrote and who can open the letter."""
    failure = detail.failure
    return dict(app.clearance().told(failure)) if isinstance(failure, DeadLetter) else {}


def _replay(replayer: Replayer, entry: Entry, *, dry_run: bool) -> str:
    detail = replayer.ledger.open(entry.id)
    if detail is None:
        return "the entry was removed meanwhile"
    if dry_run:
        return replayer.problem(entry, detail.failure)
    try:
        return replayer.replay(entry, detail.failure, by=person())
    except BrokerUnavailable as error:
        return f"begun, the analysis worker sends it when the broker is back: {error}"
    except PayloadStoreUnavailable as error:
        return f"not begun, replay it when its payload can be had: {error}"


def _find(ledger: Ledger, beginning: str) -> Entry:
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


def _all(ledger: Ledger, wanted: EntryFilter, status: Status | None, limit: int) -> Sequence[Entry]:
    """Return up to *limit* entries that can be replayed, over all pages."""
    found: list[Entry] = []
    after = ""
    while len(found) < limit:
        page = ledger.get_failed_events(wanted, status=status, limit=LONGEST_PAGE, after=after)
        found += (entry for entry in page.entries if replayable(entry))
        after = page.next
        if not after:
            break
    return found[:limit]


def _filter(options: dict[str, Any]) -> EntryFilter:
    """Return the filter that *options* name; a person's times are local ones."""
    known: dict[str, Any] = {
        name: value.astimezone() if isinstance(value, datetime) else value
        for name, value in options.items()
    }
    if known.get("failure_class"):
        known["failure_class"] = FailureClass(known["failure_class"])
    return EntryFilter(**known)


def _status(name: str | None) -> Status | None:
    return Status(name) if name else None
