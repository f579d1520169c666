"""Values that nobody would think of: changes to a set of values, drawn from the chart's schema."""

from __future__ import annotations

import json
import re
from functools import cache
from random import Random
from typing import Any, Final

from chart.rendering import CHART

#: Words of which those are drawn that fit a pattern: what YAML, DNS, labels and Helm stumble over.
_WORDS: Final = [
    "", "a", "1", "true", "null", "no", "1e3", "0x1f", "~", "a-b", "a.b", "A_B", "shop-1.eu",
    "x" * 30, "y" * 63, "0", "0%", "100%", "7%", "1Gi", "64Mi", "0.5Gi", "5m", "1h", "/x",
    "/etc/angzarr",
    "10.0.0.0/8", "::/0", "*.example.com", "it's", 'say "x"', "{{ .Values }}", "a: b", "# c", "ü",
    "sha256:" + "0" * 64, "shop:app", "queued", "$x", "a,b",
]  # fmt: skip
_OPEN: Final = {"config", "global", "valueFrom", "tls", "rules"}


@cache
def _schema() -> dict[str, Any]:
    made: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return made


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to, its own words last."""
    ref = schema.get("$ref")
    if ref is None:
        return schema
    base = _resolved(_schema()["$defs"][ref.rpartition("/")[2]])
    both = dict(base.get("properties", {}))
    for key, more in schema.get("properties", {}).items():
        both[key] = both.get(key, {}) | more
    return base | schema | ({"properties": both} if both else {})


def draw(chance: Random, changes: int) -> dict[str, Any]:
    """Return *changes* random places of the values, each a value that fits its schema."""
    made: dict[str, Any] = {}
    for _ in range(changes):
        _change(chance, _schema(), made)
    return made


def _change(chance: Random, schema: dict[str, Any], place: dict[str, Any]) -> None:
    """Change one leaf below *place*."""
    keys = sorted(key for key in schema["properties"] if key not in _OPEN)
    key = chance.choice(keys)
    child = _resolved(schema["properties"][key])
    if child.get("properties"):
        _change(chance, child, place.setdefault(key, {}))
    else:
        place[key] = _value(chance, child)


def _value(chance: Random, schema: dict[str, Any]) -> Any:
    schema = _resolved(schema)
    if "anyOf" in schema:
        return _value(chance, chance.choice(schema["anyOf"]))
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    draws = {"boolean": _boolean, "integer": _number, "number": _number, "string": _text,
             "array": _list, "object": _map, "null": lambda *_: None}  # fmt: skip
    return draws[schema["type"]](chance, schema)


def _boolean(chance: Random, _: dict[str, Any]) -> bool:
    return chance.random() < 0.5


def _number(chance: Random, schema: dict[str, Any]) -> int:
    low, high = schema["minimum"], schema.get("maximum", 2**31 - 1)
    return chance.choice([low, low + 1, chance.randint(low, min(high, low + 50)), high])


def _text(chance: Random, schema: dict[str, Any]) -> str:
    longest, shortest = schema.get("maxLength", 99), schema.get("minLength", 0)
    fits = [
        word for word in _WORDS
        if re.search(schema.get("pattern", ""), word) and shortest <= len(word) <= longest
    ]  # fmt: skip
    return chance.choice(fits)


def _list(chance: Random, schema: dict[str, Any]) -> list[Any]:
    if schema["items"] == {"type": "object"}:
        return []  # what Kubernetes takes as it is; the chart says nothing of it
    return [
        _value(chance, schema["items"]) for _ in range(chance.randint(schema.get("minItems", 0), 2))
    ]


def _map(chance: Random, schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" in schema:
        keys = [key for key in sorted(schema["properties"]) if key not in _OPEN]
        return {
            key: _value(chance, schema["properties"][key])
            for key in keys
            if key in schema.get("required", []) or chance.random() < 0.5
        }
    if not isinstance(schema.get("additionalProperties"), dict):
        return {}
    names = schema.get("propertyNames", {"pattern": "^[a-z0-9./-]+$"}) | {"minLength": 1}
    count = chance.randint(0, 2)
    return {
        _text(chance, names): _value(chance, schema["additionalProperties"]) for _ in range(count)
    }
