"""Local time: how every table tells when something was; JSON has UTC."""

from __future__ import annotations

from datetime import datetime


def moment(at: datetime | None) -> str:
    """Return *at* in local time with its zone, as --since and --until take it; empty for None.

    At the ends of the calendar, such as the zero time of Go and .NET, it is in UTC: local time
    there is in a year that Python does not count.
    """
    if at is None:
        return ""
    try:
        local = at.astimezone()
    except (ValueError, OverflowError, OSError):
        local = at
    return local.isoformat(" ", "seconds")
