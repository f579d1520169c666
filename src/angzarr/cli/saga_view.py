"""Cases of rejected commands for people: tables. What came from outside is shown, never obeyed."""

from __future__ import annotations

import json
import shlex
from typing import Final

from rich.table import Table
from rich.text import Text

from angzarr.cli.entry_view import SHORT_ID, console, pairs, safe
from angzarr.cli.local_time import moment
from angzarr.printable import printable
from angzarr.sagas.hiding import HideData
from angzarr.sagas.links import links_of
from angzarr.sagas.log import Case, Status
from angzarr.sagas.pages import Page
from angzarr.sagas.story import Story

_COLOURS: Final = {
    Status.TOLD: "cyan",
    Status.COMPENSATED: "green",
    Status.FORWARDED: "green",
    Status.DECLINED: "yellow",
    Status.REVOKED: "magenta",
    Status.ABORTED: "red",
    Status.FAILED: "bold red",
}
#: Columns that are never cut: a person copies what stands there.
_WHOLE: Final = ("case", "rejected", "status")
_COLUMNS: Final = ("case", "rejected", "saga", "source", "command", "target", "status", "reason")
#: Characters of a reason in a list.
_LONGEST: Final = 120


def print_page(page: Page) -> None:
    """Print a page of cases."""
    out = console()
    if not page.cases:
        out.print("no rejected commands")
        return
    table = Table()
    for name in _COLUMNS:
        table.add_column(name, no_wrap=name in _WHOLE)
    for case in page.cases:
        table.add_row(
            safe(case.id[:SHORT_ID]), safe(moment(case.rejected_at)), safe(case.saga),
            safe(f"{case.source} #{case.source_sequence}"), safe(case.command_type),
            safe(case.target), safe(case.status, _COLOURS[case.status]),
            safe(case.reason.partition("\n")[0][:_LONGEST]),
        )  # fmt: skip
    out.print(table)
    if page.next:
        out.print(safe(f"more: --after {page.next}"), soft_wrap=True)


def print_story(story: Story, fallback_domain: str, data: HideData | None) -> None:
    """Print everything about a case; *data*: with what that returns of each event."""
    out, case = console(), story.case
    out.print(pairs(_facts(case)))
    table = Table("", "what", "where", "id", "when", title="chain", title_justify="left")
    links = links_of(story, fallback_domain)
    for one in links:
        cells = (one.what, one.where, one.id, moment(one.at))
        table.add_row(safe(one.step, "bold"), *map(safe, cells))
    out.print(table)
    if data is not None:
        for one in links:
            if one.event is not None:
                text = json.dumps(data(one.event), indent=2, ensure_ascii=False, default=str)
                out.print(safe(f"{one.step} {one.what}", "bold"), safe(text), sep="\n")
    # That of a case may be cut.
    if flow := (story.rejection or case).correlation_id:
        hint = f"angzarr dlq list --correlation {shlex.quote(printable(flow))}"
        out.print(Text("its dead letters: "), safe(hint), sep="")


def _facts(case: Case) -> dict[str, object]:
    times = "once" if case.asked_again == 1 else f"{case.asked_again} times"
    last = f", last by {case.asked_by}" if case.asked_by else ""
    return {
        "case": case.id,
        "status": f"{case.status} since {moment(case.changed_at)}",
        "saga": case.saga,
        "source": case.source,
        "correlation": case.correlation_id,
        "asked again": f"{times}{last}" if case.asked_again else "",
        "note": case.note,
    }
