"""Cases of rejected commands for people: tables. What came from outside is shown, never obeyed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.table import Table
from rich.text import Text

from angzarr.cli.entry_view import SHORT_ID, console, pairs, safe
from angzarr.cli.local_time import moment
from angzarr.cli.saga_choice import Page
from angzarr.cli.saga_hiding import HideData
from angzarr.events.event import Event
from angzarr.printable import printable
from angzarr.sagas.flags import Step
from angzarr.sagas.log import Case, Status
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
        out.print(safe(f"more: --after {page.next}"))


class _Link(NamedTuple):
    """A link of the chain."""

    step: str
    what: str
    where: str = ""
    id: str = ""
    at: str = ""
    event: Event | None = None


def print_story(story: Story, fallback_domain: str, data: HideData | None) -> None:
    """Print everything about a case; *data*: with what that returns of each event."""
    out, case = console(), story.case
    out.print(pairs(_facts(case)))
    table = Table("", "what", "where", "id", "when", title="chain", title_justify="left")
    links = list(_links(story, fallback_domain))
    for one in links:
        table.add_row(safe(one.step, "bold"), *map(safe, one[1:5]))
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


def _links(story: Story, fallback_domain: str) -> Iterator[_Link]:
    """Yield what happened, in order."""
    case = story.case
    if story.trigger is not None:
        yield _of_event("event", story.trigger)
    else:
        yield _Link("event", f"number {case.source_sequence}, in no book of the source")
    command = story.rejection.command.event if story.rejection else None
    yield _Link("command", case.command_type, str(case.target), case.command_id, "", command)
    yield _Link("rejected", case.reason, str(case.target), case.id, moment(case.rejected_at))
    yield _answer(case)
    for event in story.compensation:
        yield _of_event("compensation", event)
    yield from _besides(story, fallback_domain)


def _of_event(step: str, event: Event) -> _Link:
    edition = f" ({event.edition})" if event.edition else ""
    where = f"{event.domain}/{event.root}{edition} #{event.sequence}"
    return _Link(step, event.type, where, event.id, moment(event.occurred_at), event)


def _answer(case: Case) -> _Link:
    if case.status is Status.TOLD:
        return _Link("answer", "none yet", str(case.source))
    what = f"{case.status}: {case.answer}" if case.answer else str(case.status)
    return _Link("answer", what, str(case.source), "", moment(case.changed_at))


def _besides(story: Story, fallback_domain: str) -> Iterator[_Link]:
    """Yield what was done besides; a letter is named by the hint."""
    for step in story.case.steps:
        match step:
            case Step.DEAD_LETTER:
                yield _Link("then", "a dead letter")
            case Step.ESCALATE:
                yield _Link("then", "an escalation", "", story.escalation)
            case Step.ABORT:
                yield _Link("then", "an abort: a dead letter")
            case Step.REVOKE:
                yield _Link("then", "SagaCompensationFailed", fallback_domain, story.failure)
