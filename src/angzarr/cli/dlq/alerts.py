"""angzarr dlq alerts: what people were told, and whether it would arrive (spec A5)."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.table import Table

from angzarr.analysis.alerts.alert import LONGEST_PAGE, Alert, AlertSeverity, Listed
from angzarr.analysis.alerts.alert_delivery import Sink, chosen, try_alert
from angzarr.analysis.alerts.alert_json import answers_json, listed_json, still_open
from angzarr.analysis.alerts.alert_text import when
from angzarr.cli.application import load_application
from angzarr.cli.dlq.entry_view import console, safe
from angzarr.cli.dlq.selection import JSON
from angzarr.cli.standard_output import print_json
from angzarr.clock import SystemClock
from angzarr.runtime.text import printable
from angzarr.webhooks import Answer

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
        sinks = chosen(load_application(app_name).open_webhooks(), name)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    alert, answers = try_alert(sinks, SystemClock())
    if as_json:
        print_json(answers_json(answers))
    else:
        for known, answer in answers.items():
            _say(sinks[known], answer, alert)
    if not all(answer.arrived for answer in answers.values()):
        raise SystemExit(1)


def _say(sink: Sink, answer: Answer, alert: Alert) -> None:
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
