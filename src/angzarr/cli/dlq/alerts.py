"""angzarr dlq alerts, brake: alerts and their webhooks, and the emergency stop of replays (A5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import click
from rich.table import Table

from angzarr.analysis.alerts.alert import (
    LONGEST_PAGE,
    Alert,
    Listed,
    answers_json,
    listed_json,
    still_open,
)
from angzarr.analysis.alerts.alert_delivery import Sink, chosen, try_alert
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.alerts.alert_text import when
from angzarr.analysis.ledger.emergency_stop import (
    Brake,
    BrakeState,
    Scope,
    brake_json,
    brake_state_json,
)
from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, Span, console, moment, print_json, safe
from angzarr.clock import SystemClock
from angzarr.facts.act import ActKind
from angzarr.runtime.text import printable
from angzarr.webhooks import PostResult
from angzarr.wiring.analysis_worker import person

_COLOURS = {AlertSeverity.WARNING: "yellow", AlertSeverity.ERROR: "red"}


@click.group()
def alerts() -> None:
    """Alerts: what people were told of failures, and where alerts go."""


@alerts.command("list")
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@JSON
@click.pass_obj
def list_(app_name: str | None, limit: int, *, as_json: bool) -> None:
    """List alerts, the one raised last first, and how their deliveries stand."""
    store = load_application(app_name).open_alerts()
    try:
        found = store.get_alerts(limit=limit)
        open_ = still_open(store, found)
    finally:
        store.close()
    if as_json:
        told = [listed_json(one, is_open=one.alert.id in open_) for one in found]
        print_json({"alerts": told})
    else:
        _print(found, open_)


@alerts.command()
@click.option("--url", "name", metavar="NAME", help="Only this webhook, by its name.")
@JSON
@click.pass_obj
def test(app_name: str | None, name: str | None, *, as_json: bool) -> None:
    """Send a signed test alert to each webhook and say what came back.

    Exits with 1 if one of them did not take it.
    """
    try:
        ops = load_application(app_name)
        sinks = chosen(ops.open_webhooks(), name)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with ops.acts.recording(ActKind.ALERT_TESTED, ", ".join(sinks), by=person()) as act:
        alert, answers = try_alert(sinks, SystemClock())
        act.done({"alert": alert.id, "answers": answers_json(answers)})
    if as_json:
        print_json(answers_json(answers))
    else:
        for known, answer in answers.items():
            _say(sinks[known], answer, alert)
    if not all(answer.arrived for answer in answers.values()):
        raise SystemExit(1)


def _say(sink: Sink, answer: PostResult, alert: Alert) -> None:
    what = f"took alert {alert.id}" if answer.arrived else answer.problem
    took = f"{answer.took.total_seconds():.2f} s"
    click.echo(printable(f"{sink.name} ({sink.place}): {what} ({took})"))


def _print(found: Sequence[Listed], open_: frozenset[str]) -> None:
    out = console()
    if not found:
        out.print("no alerts")
        return
    table = Table()
    for name in ("raised", "severity", "open", "alert", "count", "delivered"):
        table.add_column(name, no_wrap=name == "raised")
    for alert, deliveries in found:
        told = ", ".join(
            f"{one.sink}: {one.fate}" + (f" ({one.problem})" if one.problem else "")
            for one in deliveries
        )
        severity = "resolved" if alert.resolved else alert.severity.value
        colour = "green" if alert.resolved else _COLOURS[alert.severity]
        table.add_row(
            safe(when(alert.raised_at)), safe(severity, colour),
            "yes" if alert.id in open_ else "", safe(alert.title), safe(alert.count), safe(told),
        )  # fmt: skip
    out.print(table)


_HELD: Final = {
    Scope.NOTHING: "released: replays go on",
    Scope.AUTOMATIC: "pulled: nothing is replayed by itself",
    Scope.ALL: "pulled: nothing is replayed, replay jobs included",
}
#: States that `history` shows.
_SHOWN: Final = 50


@click.group()
def brake() -> None:
    """Stop replays everywhere, and let them go on."""


@brake.command()
@JSON
@click.pass_obj
def status(app_name: str | None, *, as_json: bool) -> None:
    """Show how the brake stands."""
    with _brake(app_name) as found:
        _tell(found.state(), as_json=as_json)


@brake.command()
@click.option("--all", "everything", is_flag=True, help="Stop what people began, too.")
@click.option("--why", default="", help="Why, for the history and those who look.")
@click.option("--for", "lasts", type=Span(), help="After how long it lets go: 15m, 2h, 1d.")
@JSON
@click.pass_obj
def pull(
    app_name: str | None, /, *, everything: bool, why: str, lasts: timedelta | None, as_json: bool
) -> None:
    """Let nothing be replayed by itself any more; what is under way is answered as ever."""
    until = datetime.now(UTC) + lasts if lasts else None
    scope = Scope.ALL if everything else Scope.AUTOMATIC
    with _brake(app_name) as found:
        _tell(found.put(scope, by=person(), why=why, until=until), as_json=as_json)


@brake.command()
@click.option("--why", default="", help="Why, for the history.")
@JSON
@click.pass_obj
def release(app_name: str | None, /, *, why: str, as_json: bool) -> None:
    """Let replays go on."""
    with _brake(app_name) as found:
        _tell(found.put(Scope.NOTHING, by=person(), why=why), as_json=as_json)


@brake.command()
@JSON
@click.pass_obj
def history(app_name: str | None, *, as_json: bool) -> None:
    """Show who moved it, and when, the oldest line first."""
    with _brake(app_name) as found:
        states = found.brake_history(_SHOWN)
    if as_json:
        print_json([brake_state_json(state) for state in states])
        return
    for state in states:
        console().print(safe(_line(state)))


@contextmanager
def _brake(app_name: str | None) -> Iterator[Brake]:
    found = load_application(app_name).open_brake()
    try:
        yield found
    finally:
        found.close()


def _tell(state: BrakeState, *, as_json: bool) -> None:
    now = datetime.now(UTC)
    if as_json:
        print_json(brake_json(state, now))
        return
    console().print(safe(_HELD[state.holds(now)]))
    if state.first is not None and state.holds(now) is not Scope.NOTHING:
        who = "or earlier; then pulled" if state.earlier else "first pulled"
        console().print(safe(f"{moment(state.first.at)}  {who} by {state.first}"))
    if state.at is not None:
        console().print(safe(_line(state)))


def _line(state: BrakeState) -> str:
    why = f": {state.why}" if state.why else ""
    if state.scope is Scope.NOTHING:
        return f"{moment(state.at)}  released by {state.by}{why}"
    ends = f", until {moment(state.until)}" if state.until else ""
    return f"{moment(state.at)}  {state.scope}{ends}  by {state.by}{why}"
