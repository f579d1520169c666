"""Local time: how every table tells when something was; JSON has UTC."""

from __future__ import annotations

from datetime import datetime


def moment(at: datetime | None) -> str:
    """Return *at* in local time with its zone, as --since and --until take it; empty for None."""
    return at.astimezone().isoformat(" ", "seconds") if at else ""
