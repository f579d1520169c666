"""angzarr dlq list, show, stats: the ledger for people (spec A5).

Text that came from outside is shown, never obeyed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

import click
from rich.table import Column, Table
from rich.text import Text

from angzarr.analysis.ledger.entry import Entry, EntryDetail, HistoryLine, Status
from angzarr.analysis.ledger.export import entry_detail_json, entry_page_json, json_text, stats_json
from angzarr.analysis.ledger.failure import Failure, Unreadable, payload_of
from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryPage, FailureStats
from angzarr.analysis.ledger.operator_actions import is_parked
from angzarr.analysis.ledger.replay_options import STALE_AGAIN
from angzarr.analysis.replay.skip import told_behind
from angzarr.cli.application import entry_ids, load_application, open_behind
from angzarr.cli.dlq.selection import STATUS, filter_of, filtered, find, opened_ledger, status_of
from angzarr.cli.terminal import JSON, SHORT_ID, console, moment, pairs, print_json, safe
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.facts.act import origin_text
from angzarr.wiring.analysis_worker import open_editor, open_replayer
from angzarr.wiring.operations import Operations


@click.command("list")
@filtered
@STATUS
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@JSON
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
    ops = load_application(app_name)
    with opened_ledger(ops) as ledger, ExitStack() as doors:
        try:
            page = ledger.get_failed_events(
                filter_of(wanted), status=status_of(status), limit=limit, after=after
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        behind = open_behind(ops, doors)(page.entries)
    if as_json:
        print_json(entry_page_json(page, behind))
    else:
        print_page(page, behind)


@click.command()
@click.argument("entry", shell_complete=entry_ids)
@click.option("--open", "opens", is_flag=True, help="Show data that came encrypted.")
@JSON
@click.pass_obj
def show(app_name: str | None, entry: str, *, opens: bool, as_json: bool) -> None:
    """Show everything about ENTRY (its id, or how it begins).

    Data that came encrypted are shown by --open, which takes their key.
    """
    ops = load_application(app_name)
    with opened_ledger(ops) as ledger, ExitStack() as doors:
        detail = ledger.open(find(ledger, entry).id)
        if detail is None:
            msg = f"entry {entry} was removed meanwhile"
            raise click.ClickException(msg)
        behind = open_behind(ops, doors)([detail.entry])
        if opens:
            detail = _opened(ops, doors, detail)
    protection = _protection(ops, detail)
    if as_json:
        print_json(entry_detail_json(detail, behind) | {"protection": protection})
    else:
        print_detail(detail, protection, behind.get(detail.entry.id, 0))


@click.command()
@JSON
@click.pass_obj
def stats(app_name: str | None, *, as_json: bool) -> None:
    """Count all entries."""
    with opened_ledger(load_application(app_name)) as ledger:
        found = ledger.get_failure_stats()
    if as_json:
        print_json(stats_json(found))
    else:
        print_stats(found)


def _opened(ops: Operations, doors: ExitStack, detail: EntryDetail) -> EntryDetail:
    """*detail* with the data of its event, opened with the keys of this app."""
    failure = detail.failure
    data = open_editor(ops, open_replayer(ops, doors)).shown(failure)
    if isinstance(data, Refusal):
        raise click.ClickException(data)
    if not isinstance(failure, DeadLetter) or failure.event is None:
        return detail
    event = replace(failure.event, data=data)
    return replace(detail, failure=replace(failure, event=event, payload=None))


def _protection(ops: Operations, detail: EntryDetail) -> dict[str, str]:
    """The known facts of who wrote and who can open the letter."""
    failure = detail.failure
    return dict(ops.clearance().told(failure)) if isinstance(failure, DeadLetter) else {}


#: Characters of a message that a line repeats.
LONGEST: Final = 120


class Abridged:
    """Cuts one message short, wherever a text repeats it; what else the text says stays."""

    def __init__(self, message: str) -> None:
        self._message = _abridged_one_line(message)
        self.cuts = len(self._message) > LONGEST

    def __call__(self, text: str) -> str:
        """*text* as one line, with the message cut short where it is long."""
        line = _abridged_one_line(text)
        if not self.cuts:
            return line
        before, found, after = line.partition(self._message[:LONGEST])
        if not found:
            return line
        more = zip(self._message[LONGEST:], after, strict=False)
        repeated = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], more))
        return f"{before}{found}…{after[repeated:].removeprefix('…')}"


def _abridged_one_line(text: str) -> str:
    return " ".join(text.split())


_LONGEST_BODY: Final = 4000
#: Width from which all columns of the list can be read.
_ROOMY: Final = 140
_COLUMNS: Final = (
    "entry", "status", "handler", "event", "class", "error", "replays", "behind", "last failed",
)  # fmt: skip
#: Later events that wait behind an entry: a column only where there are some.
_BEHIND: Final = "behind"
_LEFT_OUT: Final = ("event", "class", "replays")
#: Columns that are never cut: a person copies what stands there.
_WHOLE: Final = ("entry", "status", "last failed")

_COLOURS: Final = {
    Status.FAILED: "red",
    Status.WAITING: "yellow",
    Status.HELD: "magenta",
    Status.RETRYING: "cyan",
    Status.RESOLVED: "green",
    Status.ESCALATED: "bold red",
}


#: Said behind the status of an entry whose replay or skip waits in its lane.
PARKED: Final = " (parked in its lane behind an earlier event)"


def print_page(page: EntryPage, behind: Mapping[str, int]) -> None:
    """Print a page of entries, and how many later events wait *behind* which."""
    out = console()
    if not page.entries:
        out.print("no entries")
        return
    out.print(entries_table(page.entries, behind, narrow=out.width < _ROOMY))
    if page.next:
        out.print(safe(f"more: --after {page.next}"), soft_wrap=True)


def entries_table(
    entries: Iterable[Entry], behind: Mapping[str, int], *, narrow: bool = False
) -> Table:
    """A table with one row an entry; *narrow* leaves out what `show` tells, too."""
    left_out = (*(_LEFT_OUT if narrow else ()), *(() if behind else (_BEHIND,)))
    table = Table()
    for name in _COLUMNS:
        if name not in left_out:
            table.add_column(name, no_wrap=name in _WHOLE)
    for entry in entries:
        cells = _cells(entry, behind.get(entry.id))
        table.add_row(*(cells[str(column.header)] for column in table.columns))
    return table


def _cells(entry: Entry, behind: int | None) -> dict[str, Text]:
    return {
        "entry": safe(entry.id[:SHORT_ID]),
        "status": safe(entry.status, _COLOURS.get(entry.status, "")),
        "handler": safe(entry.handler_name),
        "event": safe(entry.event_id or "?"),
        "class": safe(entry.failure_class or ""),
        "error": safe(_one_line(entry)),
        "replays": safe(entry.replays),
        _BEHIND: safe("" if behind is None else f"{behind:,}"),
        "last failed": safe(moment(entry.last_failed_at)),
    }


def print_detail(detail: EntryDetail, protection: Mapping[str, str], behind: int = 0) -> None:
    """Print everything about one entry, what waits *behind* it, and whether its letter is trusted.

    Also whether that can be opened.
    """
    out, entry = console(), detail.entry
    brief = Abridged(entry.error_message)
    waiting = {"lane": told_behind(detail.failure, behind)}
    out.print(pairs({**_facts(entry, brief), **waiting, **_stale(detail), **protection}))
    if detail.context:
        known = {name: _briefly(value, brief) for name, value in detail.context.items()}
        out.print(pairs(known, "context"))
    if brief.cuts and entry.error_message not in detail.error_stacktrace:
        print_error(entry)
    out.print(Text("history", style="bold"), history_table(detail.history, brief))
    out.print(Text("payload", style="bold"))
    out.print(safe(_payload(detail)))
    if detail.error_stacktrace:
        out.print(Text("stack trace", style="bold"))
        out.print(safe(detail.error_stacktrace))


def print_stats(stats: FailureStats) -> None:
    """Print the counts."""
    out = console()
    out.print(
        pairs(
            {
                "entries": stats.total,
                "letters": stats.occurrences,
                "replays": stats.replays,
                "oldest open": moment(stats.oldest_open_at) or "none",
            }
        )
    )
    counts = (
        ("status", stats.by_status),
        ("class", stats.by_class),
        ("domain", stats.by_domain),
        ("handler", stats.by_handler),
    )
    for name, numbers in counts:
        if numbers:
            ordered = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))
            out.print(pairs({key or "(none)": number for key, number in ordered}, name))


def print_results(results: Sequence[tuple[Entry, str]], *, done: str) -> None:
    """Print what was *done* with which entries, and the reason for the others."""
    if not results:
        console().print("no entry fits: nothing was done")
        return
    table = Table(Column("entry", no_wrap=True), "handler", "event", "result")
    for entry, problem in results:
        result = safe(problem, "red") if problem else safe(done, "green")
        table.add_row(
            entry.id[:SHORT_ID], safe(entry.handler_name), safe(entry.event_id or "?"), result
        )
    console().print(table)


def print_error(entry: Entry) -> None:
    """Print the whole message of the error, which lines cut short."""
    console().print(Text("error", style="bold"), safe(entry.error_message), sep="\n")


def _briefly(value: object, brief: Abridged) -> object:
    return brief(value) if isinstance(value, str) else value


def _facts(entry: Entry, brief: Abridged) -> dict[str, object]:
    waits = {"next replay": moment(entry.next_replay_at)} if entry.next_replay_at else {}
    closed = {"resolved": f"{moment(entry.resolved_at)} by {entry.resolved_by}"}
    return {
        "entry": entry.id,
        "status": f"{entry.status}{PARKED if is_parked(entry) else ''}",
        "class": entry.failure_class or "not yet classified",
        "evidence": brief(entry.evidence),
        "handler": entry.handler_name,
        "event": f"{entry.event_id or '?'} ({entry.event_type or '?'})",
        "domain": entry.domain,
        "tenant": entry.tenant_id,
        "correlation": entry.correlation_id,
        "root": entry.root,
        "trace": entry.trace_id,
        "reason": entry.reason,
        "error": brief(f"{entry.error_type} [{entry.error_code}] {entry.error_message}"),
        "category": entry.category,
        "group": group_address(entry.fingerprint) if entry.fingerprint else "",
        "retries, replays": f"{entry.retry_count}, {entry.replays}",
        "first, last failed": f"{moment(entry.first_failed_at)}, {moment(entry.last_failed_at)}",
        **waits,
        **(closed if entry.resolved_at else {}),
    }


def _stale(detail: EntryDetail) -> dict[str, object]:
    """The sequence that a stale command expected, and how it is sent."""
    if (mismatch := detail.mismatch) is None:
        return {}
    return {
        "stale": f"{mismatch} ({mismatch.strategy_name})",
        "replay": f"{STALE_AGAIN} (--fresh-sequence)",
    }


def history_table(history: Sequence[HistoryLine], brief: Callable[[str], str] = str) -> Table:
    """Lines of a history, oldest first; *brief* cuts their details."""
    origins = any(line.origin for line in history)  # groups and jobs have none
    table = Table("when", "who", *(["where"] if origins else []), "what", "detail")
    for line in history:
        where = [safe(origin_text(line.origin))] if origins else []
        what, detail = safe(line.what), safe(brief(line.detail))
        table.add_row(moment(line.at), safe(line.who), *where, what, detail)
    return table


def _payload(detail: EntryDetail) -> str:
    failure = detail.failure
    if payload := payload_of(failure):
        stored = f", stored {moment(payload.stored_at)}" if payload.stored_at else ""
        how = "encrypted" if payload.is_sealed else "packed"
        unpacked = f", {payload.unpacked_size} bytes {how} by {payload.encoding}"
        packed = unpacked if payload.encoding else ""
        return f"kept at {payload}, SHA-256 {payload.sha256}{stored}{packed}"
    if detail.event_data is not None:
        text = json_text(detail.event_data, indent=2, is_ascii=False)
    else:
        text = _raw(failure).decode("utf-8", "backslashreplace")
    return text if len(text) <= _LONGEST_BODY else text[:_LONGEST_BODY] + "… (all of it: --json)"


def _raw(failure: Failure) -> bytes:
    """The payload as it came; of a letter of others without one, all that it says."""
    if isinstance(failure, Unreadable):
        return failure.raw
    return failure.message.body or failure.envelope


def _one_line(entry: Entry) -> str:
    return f"{entry.error_type}: {entry.error_message}".strip(": ").partition("\n")[0][:120]
