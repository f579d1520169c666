"""Alerts: their API and their page, with what people were told, and whether it would arrive (A5).

Test alerts go out one after the other, whichever process is asked: webhooks are not ours.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.analysis.alerts.alert import (
    GROUP,
    JOB,
    LONGEST_PAGE,
    Alert,
    AlertKind,
    Fate,
    answers_json,
    listed_json,
    still_open,
)
from angzarr.analysis.alerts.alert_delivery import chosen, try_alert
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.idempotent_requests import RequestBegun, WriteKey, Writes
from angzarr.clock import Clock
from angzarr.dashboard.api.route import CallerHere, ServicesHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Shape, Text
from angzarr.dashboard.pages.route import pages, render
from angzarr.dashboard.problem import Problem
from angzarr.facts.act import ActKind

#: In so long a time one request may send test alerts, of all callers of a ledger.
EVERY: Final = timedelta(seconds=10)
#: Whose writes these are; no caller is called so.
_OURS: Final = "test alerts"


def check_pace(writes: Writes, clock: Clock) -> None:
    """Take the turn of the present span; raises Problem 429 where somebody has it."""
    span, gone = divmod(clock.now().timestamp(), EVERY.total_seconds())
    turn = secrets.token_hex(16)
    if isinstance(writes.begin(WriteKey(_OURS, f"{span:.0f}"), turn, turn), RequestBegun):
        return
    seconds = max(1, round(EVERY.total_seconds() - gone))
    msg = f"a test alert was sent just now: ask again in {seconds} s"
    raise Problem(429, "too-many", msg, headers={"Retry-After": str(seconds)})


see = seeing("alerts")
act = acting("alerts")


class DeliveryShape(Shape):
    """How the delivery of an alert to one receiver stands."""

    sink: str
    fate: Fate
    attempts: int
    problem: str | None


class AlertShape(Shape):
    """An alert as it was raised; `open`: its cause is not known to be gone."""

    id: str
    key: str
    kind: AlertKind
    severity: AlertSeverity
    resolved: bool
    open: bool
    title: str
    text: str
    todo: str
    link: str | None
    raised_at: datetime
    since: datetime
    last_at: datetime
    count: int
    group: str | None
    domain: str | None
    handler: str | None
    error_type: str | None
    deliveries: list[DeliveryShape]


class AlertsShape(Shape):
    """The alerts that were raised last, newest first."""

    alerts: list[AlertShape]


class AlertQuery(Asked):
    """Which of the alerts that were raised last."""

    limit: int = Field(default=50, ge=1, le=LONGEST_PAGE, description="So many are looked at.")
    open: bool | None = Field(default=None, description="Only those that are open, or are not.")


class Trial(Asked):
    """A test alert; without a name to every webhook."""

    name: Text | None = None


class AnswerShape(Shape):
    """What came of sending one alert."""

    arrived: bool
    problem: str | None
    seconds: float


@see.get("/alerts", response_model=AlertsShape)
def list_alerts(services: ServicesHere, asked: Annotated[AlertQuery, Query()]) -> Response:
    """List alerts, the one raised last first, and how their deliveries stand."""
    found = services.alerts.get_alerts(limit=asked.limit)
    ids = still_open(services.alerts, found)
    told = [listed_json(one, is_open=one.alert.id in ids) for one in found]
    return answer({"alerts": [one for one in told if asked.open in {None, one["open"]}]})


@act.post(
    "/alerts/test",
    response_model=dict[str, AnswerShape],
    responses=problems({409: "This app has no webhooks."}),
)
def try_alerts(services: ServicesHere, caller: CallerHere, asked: Trial) -> Response:
    """Send a signed test alert to each webhook and say what came back; one request in 10 s."""
    try:
        sinks = chosen(services.webhooks(), asked.name)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from error
    check_pace(services.writes, services.clock)
    tested = services.acts.recording(ActKind.ALERT_TESTED, ", ".join(sinks), by=caller.name)
    with tested as recorded:
        alert, answers = try_alert(sinks, services.clock)
        told = answers_json(answers)
        recorded.done({"alert": alert.id, "answers": told})
    return answer(told)


router = pages()
#: Alerts that are looked at, those raised last.
_SHOWN: Final = 200


@router.get("/alerts")
def alerts_page(request: Request, services: ServicesHere) -> Response:
    """Show alerts that are open, then those that are over."""
    found = services.alerts.get_alerts(limit=_SHOWN)
    ids = still_open(services.alerts, found)
    return render(
        request,
        "alerts.html",
        open_=[one for one in found if one.alert.id in ids],
        past=[one for one in found if one.alert.id not in ids],
        most=_SHOWN,
        is_full=len(found) == _SHOWN,
        where=_where,
    )


def _where(alert: Alert) -> str:
    """The page that is about what an alert is about, if there is one."""
    kind, _, name = alert.subject.partition(":")
    if not name:
        return ""
    if f"{kind}:" == GROUP:
        return f"/groups/{group_address(name)}"
    return f"/jobs/{quote(name, safe='', errors='replace')}" if f"{kind}:" == JOB else ""
