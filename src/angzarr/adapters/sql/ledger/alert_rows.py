"""Alerts and watches to and from the JSON in which their tables keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final

from angzarr.analysis.alerts.alert import Alert, AlertKind, AlertSeverity, EntryCount, Watch
from angzarr.analysis.ledger.entry import is_known, read_word

_FIELDS: Final = tuple(field.name for field in fields(Alert))
_TIMES: Final = ("raised_at", "since", "last_at")


def alert_text(alert: Alert) -> str:
    """Return *alert* as JSON."""
    return json.dumps(asdict(alert), default=datetime.isoformat)


def alert_from(text: str) -> Alert:
    """Return the alert that *text* was made from; one of a newer release says all that it must."""
    told: dict[str, Any] = json.loads(text)
    said = {name: told[name] for name in _FIELDS if name in told}
    said |= {name: datetime.fromisoformat(said[name]) for name in _TIMES}
    severity = read_word(AlertSeverity, said["severity"])
    said["severity"] = severity if is_known(severity) else AlertSeverity.ERROR
    return Alert(**said | {"kind": read_word(AlertKind, said["kind"])})


def watch_text(watch: Watch) -> str:
    """Return *watch* as JSON, without what has a column of its own."""
    seen = {
        "samples": [(one.at.isoformat(), one.entries) for one in watch.samples],
        "floor": watch.floor,
        "letters": watch.letters,
        "told_to": _text(watch.told_to),
        "looked_to": _text(watch.looked_to),
        "said": {kind.value: at.isoformat() for kind, at in watch.said.items()},
        "open": {kind.value: at.isoformat() for kind, at in watch.open.items()},
        "status": watch.status,
    }
    return json.dumps(seen, separators=(",", ":"))


def watch_from(subject: str, text: str, revision: int) -> Watch:
    """Return the watch of *subject* that *text* was made from.

    An older release did not keep how far it looked into entries: to where it counted them last.
    """
    seen: dict[str, Any] = json.loads(text)
    looked_to = seen.get("looked_to", seen["samples"][-1][0] if seen["samples"] else None)
    return Watch(
        subject=subject,
        samples=tuple(EntryCount(datetime.fromisoformat(at), n) for at, n in seen["samples"]),
        floor=seen["floor"],
        letters=seen["letters"],
        told_to=_time(seen.get("told_to")),
        looked_to=_time(looked_to),
        said=_times(seen["said"]),
        open=_times(seen["open"]),
        status=seen["status"],
        revision=revision,
    )


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _times(said: Mapping[str, str]) -> dict[AlertKind, datetime]:
    return {read_word(AlertKind, kind): datetime.fromisoformat(at) for kind, at in said.items()}
