"""angzarr saga: registered sagas, rejected commands, and asking a source again (spec C4, C5).

Text that came from outside is shown, never obeyed.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem
from rich.table import Table
from rich.text import Text

from angzarr.aggregates.aggregate import AggregateType
from angzarr.aggregates.command import task_of
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import SHORTEST_ID
from angzarr.cli.terminal import JSON, SHORT_ID, YES, console, moment, pairs, print_json, safe
from angzarr.clock import SystemClock
from angzarr.delivery.handlers import Handler
from angzarr.errors import BrokerUnavailable
from angzarr.runtime.text import ago, printable
from angzarr.sagas import log as pages
from angzarr.sagas import story as story_json
from angzarr.sagas.log import MAX_FLOW, Case, CaseFilter, Page, RejectionLog, RejectionStatus
from angzarr.sagas.rejection import notification_task
from angzarr.sagas.renotification import Renotifier, under_way
from angzarr.sagas.saga import ProcessManager
from angzarr.sagas.story import EventStores, HideData, Story, links_of, story_of
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.dashboard import hiding_of
from angzarr.wiring.operations import Operations

_SAGA: Final = "saga."


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A saga, a process manager or an aggregate."""

    kind: str
    name: str
    #: Whose events a saga takes; empty: everybody's.
    source: str = ""
    reacts_to: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    #: The rejected commands that it answers.
    rejected: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


def registered_in(ops: Operations) -> list[Registration]:
    """The registrations of the app, as a worker would know them: sagas first."""
    handlers = list(ops.known_handlers())
    kinds = [_of_aggregate(ops, kind) for _, kind in sorted(ops.context.aggregates.items())]
    managers = [one for one in kinds if one.reacts_to]
    return [*_sagas(ops, handlers), *managers, *(one for one in kinds if not one.reacts_to)]


def _sagas(ops: Operations, handlers: Iterable[Handler]) -> Iterator[Registration]:
    """Yield sagas, which are known by their handlers."""
    found: dict[tuple[str, str], list[Handler]] = {}
    for one in handlers:
        ending = f".{one.event_type}"
        if one.event_type and one.name.startswith(_SAGA) and one.name.endswith(ending):
            name = one.name.removeprefix(_SAGA).removesuffix(ending)
            found.setdefault((name, one.domain or ""), []).append(one)
    for (name, source), of_it in sorted(found.items()):
        yield Registration(
            kind="saga",
            name=name,
            source=source,
            reacts_to=tuple(one.event_type or "" for one in of_it),
            queues=_queues(ops, (one.name for one in of_it)),
        )


def _of_aggregate(ops: Operations, kind: AggregateType) -> Registration:
    methods, domain = kind.methods, kind.domain
    manages = issubclass(kind, ProcessManager)
    tasks = [notification_task(domain), *(task_of(domain, one) for one in methods.handles)]
    if manages:
        tasks += [f"process.{domain}.{one}" for one in methods.reacts_to]
    return Registration(
        kind="process manager" if manages else "aggregate",
        name=domain,
        reacts_to=tuple(methods.reacts_to) if manages else (),
        handles=tuple(methods.handles),
        rejected=tuple(f"{one.type} by {one.domain}" for one in methods.rejected),
        queues=_queues(ops, tasks),
    )


def _queues(ops: Operations, tasks: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({ops.queue_for(task) for task in tasks}))


def print_registered(found: list[Registration]) -> None:
    """Print the registrations."""
    out = console()
    if not found:
        out.print("this app registers no sagas, process managers or aggregates")
        return
    table = Table("kind", "name", "reacts to", "handles", "answers rejections of", "queue")
    for one in found:
        of = f" of {one.source}" if one.source else ""
        table.add_row(
            safe(one.kind), safe(one.name), safe(", ".join(one.reacts_to) + of),
            safe(", ".join(one.handles)), safe(", ".join(one.rejected)),
            safe(", ".join(one.queues)),
        )  # fmt: skip
    out.print(table)


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
    """The filter that *options* name."""
    status, flow = options.pop("status"), options.pop("correlation_id")
    return CaseFilter(
        status=RejectionStatus(status) if status else None,
        correlation_id=flow and flow[:MAX_FLOW],  # a case has no more of it
        **options,
    )


@contextmanager
def opened_stores(ops: Operations) -> Iterator[EventStores]:
    """Open the event books and cases of the app for a block."""
    with closing(ops.open_event_stores()) as event_stores:
        yield event_stores


def page_of(log: RejectionLog, wanted: CaseFilter, *, limit: int, after: str) -> Page:
    """A page of cases; raises click.UsageError for an invalid cursor."""
    try:
        return pages.page_of(log, wanted, limit=limit, after=after)
    except ValueError as error:
        msg = f"{after!r} is not a cursor: pass the one that the page before printed"
        raise click.UsageError(msg) from error


def find(log: RejectionLog, beginning: str) -> Case:
    """The one case whose id begins so; refuses none, several, and too short ones."""
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
    """Newer cases whose id begins as *typed*; a log that cannot be asked offers none."""
    named = ctx.find_root().params.get("app_name") or os.environ.get("ANGZARR_APP")
    try:
        with opened_stores(load_application(named)) as event_stores:
            cases = event_stores.rejections.cases(CaseFilter(), limit=_OFFERED)
    except Exception:  # noqa: BLE001 - a prompt is no place for an error
        return []
    return [
        CompletionItem(one.id[:SHORT_ID], help=printable(f"{one.status} {one.command_type}"))
        for one in cases
        if one.id.startswith(typed.lower())
    ]


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
    ops = load_application(app_name)
    with opened_stores(ops) as event_stores:
        page = page_of(event_stores.rejections, wanted_of(wanted), limit=limit, after=after)
    hide = hiding_of(ops)
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
    found = registered_in(load_application(app_name))
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_registered(found)


@saga.command()
@click.argument("case", shell_complete=case_ids)
@click.option("--data", is_flag=True, help="Also the data of events, redacted as in letters.")
@JSON
@click.pass_obj
def show(app_name: str | None, case: str, *, data: bool, as_json: bool) -> None:
    """Show everything about CASE (its id, or how it begins): the chain, in order."""
    ops = load_application(app_name)
    with opened_stores(ops) as event_stores:
        story = story_of(event_stores.books, find(event_stores.rejections, case))
    hide, told = hiding_of(ops), story.case
    command = story.rejection.command.event if story.rejection else None
    story = replace(story, case=hide.of_case(told, command))
    shown = partial(hide.data, told) if data else None
    if as_json:
        print_json(story_json.story_json(story, shown))
    else:
        domain = ops.settings.saga_compensation.fallback_domain
        print_story(story, domain, shown)


@saga.command()
@click.argument("case", shell_complete=case_ids)
@NOTE
@YES
@JSON
@click.pass_obj
def compensate(app_name: str | None, case: str, *, note: str, yes: bool, as_json: bool) -> None:
    """Ask the source of CASE again, after you fixed the cause.

    However often it is asked, it compensates once.
    """
    ops = load_application(app_name)
    with opened_stores(ops) as event_stores:
        asking, found = _asking(ops, event_stores), find(event_stores.rejections, case)
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
    _tell(ops, asked, as_json=as_json)


def _asking(ops: Operations, event_stores: EventStores) -> Renotifier:
    ops.known_handlers()  # they name the queue of the source
    return Renotifier(
        log=event_stores.rejections, outbox=ops.outbox, acts=ops.acts, clock=SystemClock()
    )


def _check_told(case: Case, asking: Renotifier, *, yes: bool) -> None:
    """Warn that the source was notified and has not answered; refuse if that was just now."""
    if case.status is not RejectionStatus.TOLD:
        return
    now = asking.clock.now()
    told = f"{case.source} was told {ago(case.changed_at, now)} and has not answered yet"
    if under_way(case, now) and not yes:
        msg = f"{told}: give it some minutes, or ask again now with --yes"
        raise click.ClickException(msg)
    click.echo(printable(f"{told}: see that workers read its queue"), err=True)


def _tell(ops: Operations, case: Case, *, as_json: bool) -> None:
    if as_json:
        print_json(story_json.case_json(hiding_of(ops).of_case(case)))
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
