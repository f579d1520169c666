"""How connections to PostgreSQL are bounded, and what their address says of it. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import URL

from angzarr.adapters.sql.engine.primary import WANTED

#: How an address sets the longest statement, as libpq and the server take it.
_NAMED: Final = re.compile(
    r"(?:-c\s*|--)statement[_-]timeout\s*=\s*(?P<value>.*?)(?=\s-|$)", re.IGNORECASE
)
_SPAN: Final = re.compile(r"['\"]?(?P<count>\d+)\s*(?P<unit>[a-z]*)['\"]?", re.IGNORECASE)
#: Seconds in a unit of PostgreSQL's; without one it is milliseconds.
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}


def of(url: URL, seconds: float, *, patient: bool = False) -> dict[str, Any]:
    """Bound connects, statements and dead peers, and ask for the primary and for text.

    *patient*: a statement may take as long as it likes. What the address itself says wins (libpq).
    Its ``options`` come behind ours: one that sets a search path still has our limits, and one that
    sets a limit has its own.
    """
    limit_ms = max(round(seconds * 1000), 1)
    longest_ms = 0 if patient else limit_ms
    options = {
        **WANTED,
        "connect_timeout": max(round(seconds), 2),  # libpq's least
        "tcp_user_timeout": limit_ms,
        # Who waits for an answer sends nothing, so no write finds out that the host is gone; Linux
        # would ask after two hours. The kernel answers for a server that only thinks for long.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        # Of a database that says SQL_ASCII the driver would hand out bytes in place of text.
        "client_encoding": "utf8",
    }
    # A wait for a lock ends first, and is said to be one.
    limits = f"-c statement_timeout={longest_ms} -c lock_timeout={limit_ms * 9 // 10 or 1}"
    return {
        **{name: value for name, value in options.items() if name not in url.query},
        "options": " ".join([limits, *_said(url)]),
    }


def longest(url: URL, seconds: float) -> float | None:
    """Return how many seconds an answer may take: *seconds*, or more where the address says so.

    None where it says that there is no end, or in a way that this does not understand.
    """
    found = list(_NAMED.finditer(" ".join(_said(url))))
    if not found:
        return seconds
    span = _SPAN.fullmatch(found[-1]["value"].strip())
    unit = _SECONDS.get(span["unit"].lower()) if span else None
    if span is None or unit is None or int(span["count"]) == 0:
        return None
    return max(int(span["count"]) * unit, seconds)


def _said(url: URL) -> list[str]:
    said = url.query.get("options", ())
    return [said] if isinstance(said, str) else list(said)
