"""angzarr dlq groups, group: failures that look alike, and who looks after them (spec A3, A5)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from rich.table import Column, Table
from rich.text import Text

from angzarr.analysis.ledger.entry import HistoryLine
from angzarr.analysis.ledger.group import (
    Amendment,
    Group,
    GroupFilter,
    GroupPage,
    Groups,
    GroupStatus,
    group_address,
    group_detail_json,
    group_page_json,
)
from angzarr.analysis.ledger.group_costs import GroupCosts, costs_of_group, group_costs_text
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.cli.application import load_application
from angzarr.cli.dlq.entries import history_table
from angzarr.cli.dlq.selection import find_group, opened_groups
from angzarr.cli.terminal import JSON, Moment, Span, console, moment, pairs, print_json, safe
from angzarr.errors import ConfigurationError, Unavailable
from angzarr.facts.cost_report import sum_json
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.operations import Operations

_STATUSES: Final = [status.value for status in GroupStatus]
#: How long a connect or an answer of the facts may take: they are shown beside the group.
_HASTE: Final = timedelta(seconds=2)


@click.command("groups")
@click.option("--handler", "handler_name", help="Name of the handler.")
@click.option("--domain", help="Domain of the letters.")
@click.option("--error", "error_type", help="Type of the error.")
@click.option("--owner", help="Who looks after it.")
@click.option("--status", type=click.Choice(_STATUSES), help="Status of the group.")
@click.option("--since", type=Moment(), help="Last failed at or after; 2h: two hours ago.")
@click.option("--until", type=Moment(), help="Last failed before.")
@click.option("--all", "every", is_flag=True, help="Also groups without open entries.")
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@JSON
@click.pass_obj
def groups(
    app_name: str | None,
    /,
    *,
    every: bool,
    limit: int,
    after: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List groups of failures with open entries, the one that failed last first."""
    with opened_groups(app_name) as opened:
        try:
            page = opened.get_groups(_filter_of(wanted, every=every), limit=limit, after=after)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        print_json(group_page_json(page))
    else:
        print_page(page)


@click.command("group")
@click.argument("fingerprint")
@click.option("--owner", help="The person who looks after it from now on; empty: none.")
@click.option("--note", help="What is known of it; empty: nothing.")
@click.option("--status", type=click.Choice(_STATUSES), help="Where it stands from now on.")
@click.option("--mute", type=Span(), help="No alert speaks of it for so long: 30m, 12h, 2d.")
@click.option("--unmute", is_flag=True, help="Alerts speak of it again.")
@JSON
@click.pass_obj
def group(
    app_name: str | None,
    /,
    *,
    fingerprint: str,
    mute: timedelta | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Show the group FINGERPRINT (or how it begins), after changing what options say."""
    amendment = _amendment_of(words, mute)
    with opened_groups(app_name) as opened:
        found = find_group(opened, fingerprint)
        if amendment != Amendment():
            found = _amended(opened, found, amendment)
        history = opened.group_history(found.fingerprint)
    spent = _spent_on(load_application(app_name), found)
    if as_json:
        print_json(group_detail_json(found, history) | {"costs": list(map(sum_json, spent.sums))})
    else:
        print_detail(found, history, group_costs_text(spent))


def _spent_on(ops: Operations, found: Group) -> GroupCosts:
    """What the events of a group have cost, as far as facts can be asked at once."""
    try:
        with closing(ops.open_ledger()) as ledger, closing(ops.open_fact_store(_HASTE)) as store:
            return costs_of_group(ledger, store, found.fingerprint)
    except ConfigurationError:
        return GroupCosts()
    except Unavailable as error:
        click.echo(f"costs are not known: {printable(error)}", err=True)
        return GroupCosts()


def _filter_of(options: dict[str, Any], *, every: bool) -> GroupFilter:
    """The filter that *options* name."""
    known = dict(options)
    if known.get("status"):
        known["status"] = GroupStatus(known["status"])
    return GroupFilter(**known, open_only=not every)


def _amendment_of(words: dict[str, Any], mute: timedelta | None) -> Amendment:
    if mute and words["unmute"]:
        msg = "--mute and --unmute contradict each other"
        raise click.UsageError(msg)
    status = GroupStatus(words["status"]) if words["status"] else None
    until = datetime.now(UTC).replace(microsecond=0) + mute if mute else None
    return Amendment(**{**words, "status": status}, muted_until=until)


def _amended(opened: Groups, found: Group, amendment: Amendment) -> Group:
    changed = opened.amend(found.fingerprint, amendment, revision=found.revision, by=person())
    if changed is None:
        msg = f"the group {found.fingerprint} was changed meanwhile: look again, then repeat it"
        raise click.ClickException(msg)
    return changed


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


def print_detail(group: Group, history: Sequence[HistoryLine], spent: str = "") -> None:
    """Print everything about one group; *spent* is a sentence about its costs."""
    out = console()
    out.print(pairs(_facts(group)))
    if spent:
        out.print(safe(spent), soft_wrap=True)
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
