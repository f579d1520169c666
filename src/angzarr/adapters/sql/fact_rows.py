"""Fact ↔ row: every fact becomes a row that both databases take, whatever is in it. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import RowMapping

from angzarr.facts import Fact

#: Longest text in a column of its own, in characters: PostgreSQL refuses index entries beyond
#: 2,700 bytes, and some of these texts come from foreign headers.
MAX_TEXT = 500
#: Deeper data is written as text; also the end of data that contains itself.
MAX_DEPTH = 20

_TEXTS = (
    "type", "subtype", "tenant_id", "entity_id", "tool_id", "asset_id", "config_id",
    "config_version",
)  # fmt: skip


def row_of(fact: Fact) -> dict[str, Any]:
    """Return *fact* as a row: long texts cut, times in UTC, data as JSON."""
    return {
        "id": key_of(fact.id),
        "timestamp": utc(fact.at),
        "data": _json(fact.data, MAX_DEPTH),
        **{name: _column(getattr(fact, name)) for name in _TEXTS},
    }


def fact_of(row: RowMapping) -> Fact:
    """Return the fact that *row* holds."""
    texts = {name: row[name] for name in _TEXTS}
    return Fact(id=row["id"], at=utc(row["timestamp"]), data=row["data"], **texts)


def utc(moment: datetime) -> datetime:
    """Return *moment* in UTC; a naive one is UTC already (SQLite forgets the zone)."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def key_of(given: str) -> str:
    """Return a short id as it is, a long one as its digest: cut ids could meet."""
    text = _text(given)
    if len(text) <= MAX_TEXT:
        return text
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def _column(value: str | None) -> str | None:
    return None if value is None else _text(value)[:MAX_TEXT]


def _text(value: str) -> str:
    """Return *value* without what PostgreSQL or UTF-8 cannot hold: NUL and lone surrogates."""
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _json(value: Any, depth: int) -> Any:
    """Return *value* as pure JSON; what has no JSON form (money, times, NaN) is its text."""
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            return _text(value)
        case Mapping() if depth:
            return {_text(str(key)): _json(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [_json(item, depth - 1) for item in value]
        case _:
            return _text(str(value))
