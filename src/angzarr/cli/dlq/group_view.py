"""Groups for people. What came from outside is shown, never obeyed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Column, Table
from rich.text import Text

from angzarr.analysis.ledger.entry import HistoryLine
from angzarr.analysis.ledger.group import Group, GroupPage, GroupStatus, group_address
from angzarr.cli.dlq.entry_view import console, history_table, pairs, safe
from angzarr.cli.spans import moment

_COLOURS: Final = {
    GroupStatus.NEW: "red",
    GroupStatus.ACKNOWLEDGED: "yellow",
    GroupStatus.FIXED: "green",
    GroupStatus.REGRESSED: "bold red",
}
#: Characters of a fingerprint of ours; those of others may be longer, and are still to be copied.
_FINGERPRINT: Final = 16
#: Characters of an error that stand in one row.
_SHORT: Final = 100


def print_page(page: GroupPage) -> None:
    """Print a page of groups."""
    out = console()
    if not page.groups:
        out.print("no groups")
        return
    table = Table(
        Column("group", min_width=_FINGERPRINT, overflow="fold"),
        "status", "handler", "class", "error",
        Column("open", justify="right", no_wrap=True),
        Column("entries", justify="right", no_wrap=True),
        Column("last failed", no_wrap=True),
        "owner",
    )  # fmt: skip
    for group in page.groups:
        table.add_row(*_cells(group))
    out.print(table)
    if page.next:
        out.print(safe(f"more: --after {page.next}"), soft_wrap=True)


def print_detail(group: Group, history: Sequence[HistoryLine]) -> None:
    """Print everything about one group."""
    out = console()
    out.print(pairs(_facts(group)))
    out.print(pairs(dict(group.by_status), "entries by status"))
    if group.note:
        out.print(Text("note", style="bold"))
        out.print(safe(group.note))
    if history:
        out.print(Text("history", style="bold"), history_table(history))
    look = f"angzarr dlq list --group {group_address(group.fingerprint)}"
    out.print(safe(look), soft_wrap=True)


def _cells(group: Group) -> tuple[Text, ...]:
    return (
        safe(group_address(group.fingerprint)),
        safe(group.status, _COLOURS.get(group.status, "")),
        safe(group.handler_name),
        safe(group.failure_class or ""),
        safe(_error(group)[:_SHORT]),
        safe(f"{group.open_entries:,}"),
        safe(f"{group.entries:,}"),
        safe(moment(group.last_failed_at)),
        safe(group.owner),
    )


def _facts(group: Group) -> dict[str, object]:
    return {
        "group": group_address(group.fingerprint),
        "status": group.status,
        "owner": group.owner,
        "muted until": moment(group.muted_until),
        "handler": group.handler_name,
        "domain": group.domain,
        "event type": group.event_type,
        "class": group.failure_class,
        "reason": group.reason,
        "error": _error(group),
        "entries": f"{group.entries:,}, {group.open_entries:,} of them open",
        "letters": f"{group.occurrences:,}",
        "first, last failed": f"{moment(group.first_failed_at)}, {moment(group.last_failed_at)}",
        "latest entry": group.latest_entry_id,
    }


def _error(group: Group) -> str:
    return f"{group.error_type}: {group.error_message}".strip(": ").partition("\n")[0]
