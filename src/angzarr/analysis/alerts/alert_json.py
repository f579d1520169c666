"""Alerts as JSON: for programs, for webhooks, and in the form that Slack takes.

The same alert makes the same bytes, however often it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from angzarr.analysis.alerts.alert import Alert, Alerts, AlertSeverity, BodyFormat, Listed, as_text
from angzarr.webhooks import Answer

#: What Slack takes of a plain header, and of a text.
_HEADER: Final = 150
_SECTION: Final = 3000
_MARKS: Final = {
    AlertSeverity.WARNING: "\N{LARGE YELLOW CIRCLE}",
    AlertSeverity.ERROR: "\N{LARGE RED CIRCLE}",
}
_RESOLVED: Final = "\N{LARGE GREEN CIRCLE}"


def body_of(alert: Alert, form: BodyFormat) -> bytes:
    """Return *alert* as JSON for a receiver of *form*."""
    said = slack_json(alert) if form is BodyFormat.SLACK else generic_json(alert)
    return json.dumps(said, ensure_ascii=True, separators=(",", ":")).encode()


def generic_json(alert: Alert) -> dict[str, Any]:
    """Return *alert* in the form of docs/reference/alerts.md; names do not change."""
    return {
        "type": "dlq.alert.resolved" if alert.resolved else "dlq.alert",
        "timestamp": _json_time(alert.raised_at),
        "data": {
            "id": alert.id,
            "key": alert.key,
            "kind": alert.kind.value,
            "severity": alert.severity.value,
            "resolved": alert.resolved,
            "title": alert.title,
            "text": alert.text,
            "todo": alert.todo,
            "link": alert.link or None,
            "since": _json_time(alert.since),
            "last_at": _json_time(alert.last_at),
            "count": alert.count,
            "group": alert.fingerprint or None,
            "domain": alert.domain or None,
            "handler": alert.handler_name or None,
            "error_type": alert.error_type or None,
        },
    }


def slack_json(alert: Alert) -> dict[str, Any]:
    """Return *alert* for an incoming webhook of Slack; nothing in it is markup of a letter's."""
    mark = _RESOLVED if alert.resolved else _MARKS[alert.severity]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _slack_text(f"{mark} {alert.title}", _HEADER)},
        {"type": "section", "text": _slack_text(f"{alert.text} {alert.todo}".strip(), _SECTION)},
    ]
    if alert.link:
        link = f"<{_without_markup(alert.link).replace('|', '%7C')}|Open>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link[:_SECTION]}})
    return {"text": _without_markup(f"{mark} {as_text(alert)}")[:_SECTION], "blocks": blocks}


def _slack_text(text: str, longest: int) -> dict[str, Any]:
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return {"type": "plain_text", "text": cut, "emoji": False}


def _without_markup(text: str) -> str:
    """Return *text* without Slack's markup: links, mentions, ``<!channel>``."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def still_open(alerts: Alerts, found: Sequence[Listed]) -> frozenset[str]:
    """The ids of those of *found*, newest first, whose cause is not known to be gone."""
    watches = alerts.watches({one.alert.subject for one in found})
    ids: set[str] = set()
    over: set[str] = set()
    for alert, _ in found:
        if alert.resolved:
            over.add(alert.key)
        watch = watches.get(alert.subject)
        began = watch.open.get(alert.kind) if watch else None
        if began is not None and alert.key not in over and alert.raised_at >= began:
            ids.add(alert.id)
    return frozenset(ids)


def listed_json(one: Listed, *, is_open: bool) -> dict[str, Any]:
    """An alert and how its deliveries stand as a JSON object."""
    told = generic_json(one.alert)
    deliveries = [
        {"sink": d.sink, "fate": d.fate.value, "attempts": d.attempts, "problem": d.problem or None}
        for d in one.deliveries
    ]
    return {
        **told["data"],
        "raised_at": told["timestamp"],
        "open": is_open,
        "deliveries": deliveries,
    }


def answers_json(answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    """Return what came of a trial as a JSON object, by name of the sink."""
    return {
        name: {
            "arrived": answer.arrived,
            "problem": answer.problem or None,
            "seconds": answer.took.total_seconds(),
        }
        for name, answer in answers.items()
    }
