"""A fact as one line of JSON: so it travels from a claim's ending to the sinks (spec F1). Pure.

A line is made once, where the event is settled. What reads it trusts nothing: it came from a store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from angzarr.facts.fact import Cost, Fact
from angzarr.runtime.json_bounds import Bounds, check_json

#: Deeper data is written as text; also the end of data that contains itself.
MAX_DEPTH: Final = 20
#: Characters of one line. Data that would make it longer is left out, and its length told.
MAX_LINE: Final = 256 * 1024
#: What a line may parse to.
_BOUNDS: Final = Bounds(nodes=MAX_LINE // 4, depth=MAX_DEPTH + 5)

_OPTIONAL: Final = (
    "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id", "config_id",
    "config_version", "resolves",
)  # fmt: skip
_PARTIES: Final = ("from_entity", "to_entity")
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
#: Digits before or behind the point of an amount.
_LARGEST: Final = 100


def fact_text(fact: Fact) -> str:
    """*fact* as one line of ASCII; `fact_from_text` reads it back.

    Data that JSON does not know is written as text, data that is too long or too deep is cut.
    """
    said: dict[str, Any] = {
        "id": fact.id, "type": fact.type, "subtype": fact.subtype, "at": fact.at.isoformat(),
    }  # fmt: skip
    for name in _OPTIONAL:
        if (value := getattr(fact, name)) is not None:
            said[name] = value
    if fact.cost is not None:
        said["cost"] = _said_of(fact.cost)
    text = _line(said, fact.data)
    return text if len(text) <= MAX_LINE else _line(said, {"left_out_characters": len(text)})


def fact_from_text(text: str) -> Fact:
    """The fact that *text* holds; raises ValueError, in one sentence, where it holds none."""
    if len(text) > MAX_LINE:
        msg = f"a fact of {len(text)} characters is longer than {MAX_LINE}"
        raise ValueError(msg)
    check_json(text, _BOUNDS)
    said = json.loads(text, parse_constant=str)
    if not isinstance(said, dict):
        msg = "a fact is a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - of a text, every fault is one of its value
    data = said.get("data", {})
    if not isinstance(data, dict):
        msg = "data of a fact is a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - the same
    return Fact(
        **{name: _text(said, name) for name in ("id", "type", "subtype")},
        **{name: _text(said, name) for name in _OPTIONAL if said.get(name) is not None},
        at=_time(said),
        cost=None if said.get("cost") is None else _cost(said["cost"]),
        data=data,
    )


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """*value* as pure JSON; what has no JSON form (money, times, NaN) is its text."""
    kind = type(value)
    if kind is str:
        return clean(value)
    if value is None or kind is int or kind is bool:  # nearly all are one of these
        return value
    return _plain(value, depth)


def _plain(value: Any, depth: int) -> Any:
    match value:
        case int():
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            return clean(value)
        case Mapping() if depth:
            return {clean(str(key)): plain(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [plain(item, depth - 1) for item in value]
        case _:
            return clean(str(value))


def clean(value: str) -> str:
    """*value* without what PostgreSQL or UTF-8 cannot hold: NUL and lone surrogates."""
    if value.isascii() and "\x00" not in value:
        return value
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _line(said: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    return _ENCODE({**said, "data": plain(data)})


def _said_of(cost: Cost) -> dict[str, str]:
    said = {"amount": str(cost.amount), "currency": cost.currency}
    for name in _PARTIES:
        if (value := getattr(cost, name)) is not None:
            said[name] = value
    return said


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or (name == "id" and not value):
        msg = f"{name} of a fact is a text, not {value!r:.50}"
        raise ValueError(msg)
    return value


def _time(said: Mapping[str, Any]) -> datetime:
    text = _text(said, "at")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = datetime.min  # noqa: DTZ901 - it has no zone
    if at.tzinfo is None:
        msg = f"at of a fact is a time with its zone, not {text!r:.50}"
        raise ValueError(msg)
    return at


def _cost(said: Any) -> Cost:
    if not isinstance(said, dict):
        msg = "cost of a fact is a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - as above
    try:
        amount = Decimal(_text(said, "amount"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0 or abs(amount.adjusted()) > _LARGEST:
        msg = f"amount of a cost is a decimal number from 0 on, not {said['amount']!r:.50}"
        raise ValueError(msg)
    parties = {name: _text(said, name) for name in _PARTIES if said.get(name) is not None}
    return Cost(amount=amount, currency=_text(said, "currency"), **parties)
