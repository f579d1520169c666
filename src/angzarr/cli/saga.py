"""angzarr saga: what became of rejected commands, and having a source asked anew (spec C4, C5)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from angzarr.ages import ago
from angzarr.analysis.ledger import LONGEST_PAGE
from angzarr.cli import saga_registered, saga_view
from angzarr.cli.analyze import person
from angzarr.cli.application import Application, load_application
from angzarr.cli.entry_choice import JSON, YES
from angzarr.cli.entry_json import print_json
from angzarr.cli.saga_choice import (
    NOTE,
    case_ids,
    filtered,
    find,
    hiding_of,
    opened,
    page_of,
    wanted_of,
)
from angzarr.clock import SystemClock
from angzarr.errors import BrokerUnavailable
from angzarr.printable import printable
from angzarr.sagas import story_json
from angzarr.sagas.asking import Asking, under_way
from angzarr.sagas.log import Case, Status
from angzarr.sagas.story import Shelves, story_of


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
        saga_view.print_page(page)


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
        saga_view.print_story(story, domain, shown)


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


def _asking(app: Application, shelves: Shelves) -> Asking:
    app.known_handlers()  # which say the queue of whoever is asked
    return Asking(
        log=shelves.rejections, outbox=app.outbox, facts=lambda: app.facts, clock=SystemClock()
    )


def _check_told(case: Case, asking: Asking, *, yes: bool) -> None:
    """Warn that the source was told and has not answered; refuse if that was just now."""
    if case.status is not Status.TOLD:
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
