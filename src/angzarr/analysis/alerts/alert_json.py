"""Alerts as JSON, for programs. The command line's `--json` and the HTTP API say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from angzarr.analysis.alerts.alert import Alerts, Listed
from angzarr.analysis.alerts.alert_body import generic_json
from angzarr.webhooks import Answer


def still_open(alerts: Alerts, found: Sequence[Listed]) -> frozenset[str]:
    """Return the ids of those of *found*, newest first, whose cause is not known to be gone."""
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
    """Return an alert and how its deliveries stand as a JSON object."""
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
