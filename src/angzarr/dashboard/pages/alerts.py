"""The page of alerts: what people were told lately, and which of it is not over."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.alerts.alert import GROUP, JOB, Alert, still_open
from angzarr.analysis.ledger.group import group_address
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.pages.route import pages, render

router = pages()
#: Alerts that are looked at, those raised last.
_SHOWN: Final = 200


@router.get("/alerts")
def list_alerts(request: Request, services: ServicesHere) -> Response:
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
