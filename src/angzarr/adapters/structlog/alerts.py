"""Alerts as lines of the structured log, one each (spec A5): ERROR, or WARNING for warnings."""

from __future__ import annotations

import logging

from angzarr.adapters.structlog.facts import OwnLines
from angzarr.analysis.alerts.alert import Alert, AlertSeverity
from angzarr.webhooks import Answer

NAME = "angzarr.alerts"

_LEVELS = {AlertSeverity.WARNING: logging.WARNING, AlertSeverity.ERROR: logging.ERROR}


class LogSink:
    """Fulfils `Sink`: each alert is a line ``dlq_alert`` of the logger ``angzarr.alerts``."""

    name = "log"
    place = "the log"

    def __init__(self) -> None:
        self._lines = OwnLines(NAME)

    def send(self, alert: Alert) -> Answer:
        """Write *alert*; the end of a cause is INFO."""
        level = logging.INFO if alert.resolved else _LEVELS[alert.severity]
        if self._lines.wanted(level):
            event = "dlq_alert_resolved" if alert.resolved else "dlq_alert"
            self._lines.write(level, event, _fields(alert))
        return Answer(arrived=True)

    def close(self) -> None:
        """Do nothing: nothing is held back."""


def _fields(alert: Alert) -> dict[str, object]:
    """Return what *alert* says; absent fields make none."""
    said = {
        "alert_id": alert.id,
        "key": alert.key,
        "kind": alert.kind.value,
        "title": alert.title,
        "text": alert.text,
        "todo": alert.todo,
        "link": alert.link,
        "since": alert.since.isoformat(),
        "last_at": alert.last_at.isoformat(),
        "count": alert.count,
        "group": alert.fingerprint,
        "domain": alert.domain,
        "handler": alert.handler_name,
        "error_type": alert.error_type,
    }
    return {name: value for name, value in said.items() if value not in {"", None}}
