"""angzarr dlq alerts: what people were told, and whether it would arrive (spec A5)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import click
from rich.table import Table

from angzarr.analysis.alert import LONGEST_PAGE, Alert, Listed, Severity
from angzarr.analysis.alert_body import generic_json
from angzarr.analysis.alert_delivery import Answer, Sink
from angzarr.analysis.alert_text import trial_alert, when
from angzarr.cli.application import load_application
from angzarr.cli.entry_choice import JSON
from angzarr.cli.entry_json import print_json
from angzarr.cli.entry_view import console, safe
from angzarr.clock import SystemClock
from angzarr.printable import printable

_COLOURS = {Severity.WARNING: "yellow", Severity.ERROR: "red"}


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
    finally:
        store.close()
    if as_json:
        print_json({"alerts": [_json(one) for one in found]})
    else:
        _print(found)


@alerts.command()
@click.option("--url", "name", metavar="NAME", help="Only this webhook, by its name.")
@JSON
@click.pass_obj
def test(app_name: str | None, name: str | None, *, as_json: bool) -> None:
    """Send a signed test alert to each webhook and say what came back.

    Exits with 1 if one of them did not take it.
    """
    sinks = _chosen(load_application(app_name).open_webhooks(), name)
    alert = trial_alert(SystemClock().now(), uuid.uuid4().hex)
    answers = {sink.name: _try(sink, alert) for sink in sinks}
    if as_json:
        print_json({
            name: {"arrived": answer.arrived, "problem": answer.problem or None,
                   "seconds": answer.took.total_seconds()}
            for name, answer in answers.items()
        })  # fmt: skip
    else:
        for sink in sinks:
            _say(sink, answers[sink.name], alert)
    if not all(answer.arrived for answer in answers.values()):
        raise SystemExit(1)


def _chosen(sinks: Mapping[str, Sink], name: str | None) -> list[Sink]:
    if not sinks:
        msg = (
            "this app has no webhooks: name one in analysis.alerts.webhooks, e.g."
            " ops: {url: https://…, secrets: [whsec_…]}"
        )
        raise click.ClickException(msg)
    if name is not None and name not in sinks:
        msg = f"there is no webhook {printable(name)!r}; known are: {', '.join(sorted(sinks))}"
        raise click.UsageError(msg)
    return [sink for known, sink in sinks.items() if name in (None, known)]


def _try(sink: Sink, alert: Alert) -> Answer:
    try:
        return sink.send(alert)
    finally:
        sink.close()


def _say(sink: Sink, answer: Answer, alert: Alert) -> None:
    what = f"took alert {alert.id}" if answer.arrived else answer.problem
    took = f"{answer.took.total_seconds():.2f} s"
    click.echo(printable(f"{sink.name} ({sink.place}): {what} ({took})"))


def _print(found: Sequence[Listed]) -> None:
    out = console()
    if not found:
        out.print("no alerts")
        return
    table = Table()
    for name in ("raised", "severity", "alert", "count", "delivered"):
        table.add_column(name, no_wrap=name == "raised")
    for alert, deliveries in found:
        told = ", ".join(
            f"{one.sink}: {one.fate}" + (f" ({one.problem})" if one.problem else "")
            for one in deliveries
        )
        severity = "resolved" if alert.resolved else alert.severity.value
        colour = "green" if alert.resolved else _COLOURS[alert.severity]
        table.add_row(
            safe(when(alert.raised_at)), safe(severity, colour), safe(alert.title),
            safe(alert.count), safe(told),
        )  # fmt: skip
    out.print(table)


def _json(one: Listed) -> dict[str, object]:
    told = generic_json(one.alert)
    deliveries = [
        {"sink": d.sink, "fate": d.fate.value, "attempts": d.attempts, "problem": d.problem or None}
        for d in one.deliveries
    ]
    return {**told["data"], "raised_at": told["timestamp"], "deliveries": deliveries}
