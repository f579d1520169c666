"""angzarr saga: what became of rejected commands, and having a source asked anew (spec C4, C5).

Cases of rejected commands for people: tables. What came from outside is shown, never obeyed.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.cli.application import load_application
from angzarr.cli.dlq.entry_view import SHORT_ID, console, pairs, safe
from angzarr.cli.dlq.selection import JSON, YES
from angzarr.cli.saga import registered as saga_registered
from angzarr.cli.saga.selection import NOTE, case_ids, filtered, find, opened, page_of, wanted_of
from angzarr.cli.spans import moment
from angzarr.cli.standard_output import print_json
from angzarr.clock import SystemClock
from angzarr.errors import BrokerUnavailable
from angzarr.runtime.text import ago, printable
from angzarr.sagas import story as story_json
from angzarr.sagas.asking import Asking, under_way
from angzarr.sagas.log import Case, Page, RejectionStatus
from angzarr.sagas.story import EventStores, HideData, Story, links_of, story_of
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.application import Application
from angzarr.wiring.dashboard import hiding_of


@click.group()
def saga() -> None:
    """Sagas: what is registered, and what became of the commands that were rejected."""


@saga.command("list")
@filtered
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@JSON
@click.pass_obj
def list_(app_name: str | None, /, *, limit: int, after: str, as_json: bool, **wanted: Any) -> None:
    """List commands of sagas that were rejected, the newest first."""
    app = load_application(app_name)
    with opened(app) as shelves:
        page = page_of(shelves.rejections, wanted_of(wanted), limit=limit, after=after)
    hide = hiding_of(app)
    page = page._replace(cases=[hide.of_case(case) for case in page.cases])
    if as_json:
        print_json(story_json.page_json(page))
    else:
        print_page(page)


@saga.command()
@JSON
@click.pass_obj
def registered(app_name: str | None, *, as_json: bool) -> None:
    """List sagas, process managers and aggregates of the app, and the queues they read."""
    found = saga_registered.registered(load_application(app_name))
    if as_json:
        print_json(saga_registered.registered_json(found))
    else:
        saga_registered.print_registered(found)


@saga.command()
@click.argument("case", shell_complete=case_ids)
@click.option("--data", is_flag=True, help="Also the data of events, redacted as in letters.")
@JSON
@click.pass_obj
def show(app_name: str | None, case: str, *, data: bool, as_json: bool) -> None:
    """Show everything about CASE (its id, or how it begins): the chain, in order."""
    app = load_application(app_name)
    with opened(app) as shelves:
        story = story_of(shelves.books, find(shelves.rejections, case))
    hide, told = hiding_of(app), story.case
    command = story.rejection.command.event if story.rejection else None
    story = replace(story, case=hide.of_case(told, command))
    shown = partial(hide.data, told) if data else None
    if as_json:
        print_json(story_json.story_json(story, shown))
    else:
        domain = app.settings.saga_compensation.fallback_domain
        print_story(story, domain, shown)


@saga.command()
@click.argument("case", shell_complete=case_ids)
@NOTE
@YES
@JSON
@click.pass_obj
def compensate(app_name: str | None, case: str, *, note: str, yes: bool, as_json: bool) -> None:
    """Have the source of CASE asked anew, after what failed was mended.

    However often it is asked, it compensates once.
    """
    app = load_application(app_name)
    with opened(app) as shelves:
        asking, found = _asking(app, shelves), find(shelves.rejections, case)
        asking.check(found)
        _check_told(found, asking, yes=yes)
        if not yes:
            what = f"Ask {found.source} again to compensate for the rejected {found.command_type}?"
            click.confirm(printable(what), abort=True, err=True)
        try:
            asked = asking.ask(found, by=person(), note=note)
        except BrokerUnavailable as error:
            msg = (
                f"the broker did not confirm it ({error.__cause__ or error}): nothing is lost, do"
                " it again with --yes when the broker is back; however often a source is asked,"
                " it compensates once"
            )
            raise click.ClickException(msg) from error
    _tell(app, asked, as_json=as_json)


def _asking(app: Application, shelves: EventStores) -> Asking:
    app.known_handlers()  # which say the queue of whoever is asked
    return Asking(
        log=shelves.rejections, outbox=app.outbox, facts=lambda: app.facts, clock=SystemClock()
    )


def _check_told(case: Case, asking: Asking, *, yes: bool) -> None:
    """Warn that the source was told and has not answered; refuse if that was just now."""
    if case.status is not RejectionStatus.TOLD:
        return
    now = asking.clock.now()
    told = f"{case.source} was told {ago(case.changed_at, now)} and has not answered yet"
    if under_way(case, now) and not yes:
        msg = f"{told}: give it some minutes, or ask again now with --yes"
        raise click.ClickException(msg)
    click.echo(printable(f"{told}: see that workers read its queue"), err=True)


def _tell(app: Application, case: Case, *, as_json: bool) -> None:
    if as_json:
        print_json(story_json.case_json(hiding_of(app).of_case(case)))
        return
    times = f" for the {case.asked_again}. time" if case.asked_again > 1 else ""
    said = (
        f"{case.source} is asked again{times} to compensate for the rejected"
        f" {case.command_type}; what it answers: angzarr saga show {case.id}"
    )
    click.echo(printable(said))


_COLOURS: Final = {
    RejectionStatus.TOLD: "cyan",
    RejectionStatus.COMPENSATED: "green",
    RejectionStatus.FORWARDED: "green",
    RejectionStatus.DECLINED: "yellow",
    RejectionStatus.REVOKED: "magenta",
    RejectionStatus.ABORTED: "red",
    RejectionStatus.FAILED: "bold red",
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
