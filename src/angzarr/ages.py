"""Ages: how long something was ago, in words for people."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

#: From here on hours say more than a person wants to know.
_DAYS: Final = timedelta(days=2)


def ago(at: datetime | None, now: datetime) -> str:
    """Return how long before *now* something was; empty: it was not."""
    return "" if at is None else f"{span_text(max(now - at, timedelta(0)))} ago"


def span_text(span: timedelta) -> str:
    """Return *span* in its two largest units."""
    if span >= _DAYS:
        return f"{span.days} d"
    seconds = round(span.total_seconds())
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
