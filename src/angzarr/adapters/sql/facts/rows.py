"""Facts as rows that both databases take: long texts cut, times in UTC, data as pure JSON."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sqlalchemy import RowMapping

from angzarr.adapters.sql.engine.statements import utc
from angzarr.facts.fact import Cost, Fact
from angzarr.facts.fact_text import clean, plain

#: Longest text in a column of its own, in characters: PostgreSQL refuses index entries beyond
#: 2,700 bytes, and some of these texts come from foreign headers.
MAX_TEXT = 500

_TEXTS: Final = (
    "type", "subtype", "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id",
    "config_id", "config_version",
)  # fmt: skip
_COST: Final = ("amount", "currency", "from_entity", "to_entity")
_NO_COST: Final = dict.fromkeys(_COST)


def row_of(fact: Fact) -> dict[str, Any]:
    """*fact* as a row: long texts cut, times in UTC, data as JSON."""
    return {
        "id": key_of(fact.id),
        "timestamp": utc(fact.at),
        "data": plain(fact.data),
        "by": _column(fact.by),
        "resolves": None if fact.resolves is None else key_of(fact.resolves),
        **{name: _column(getattr(fact, name)) for name in _TEXTS},
        **(_NO_COST if fact.cost is None else _cost_row(fact.cost)),
    }


def fact_of(row: RowMapping) -> Fact:
    """The fact that *row* holds."""
    texts = {name: row[name] for name in _TEXTS}
    cost = None if row["amount"] is None else Cost(**{name: row[name] for name in _COST})
    return Fact(
        id=row["id"],
        at=utc(row["timestamp"]),
        resolves=row["resolves"],
        cost=cost,
        data=row["data"],
        **texts,
    )


def _cost_row(cost: Cost) -> dict[str, Any]:
    return {
        "amount": cost.amount,
        "currency": clean(cost.currency),
        "from_entity": _column(cost.from_entity),
        "to_entity": _column(cost.to_entity),
    }


def key_of(given: str) -> str:
    """A short id as it is, a long one as its digest: cut ids could meet."""
    text = clean(given)
    if len(text) <= MAX_TEXT:
        return text
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def _column(value: str | None) -> str | None:
    return None if value is None else clean(value)[:MAX_TEXT]
