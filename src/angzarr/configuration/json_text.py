"""Canonical JSON of configurations: one text for each value. What people give is hostile. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from angzarr.errors import ConfigurationUnfit
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json

#: Bytes of a value or a schema as canonical JSON; one is read whole, by every worker.
LARGEST: Final = 1024 * 1024
_BOUNDS: Final = Bounds(nodes=200_000, depth=50)


def canonical(value: object, what: str = "the value") -> str:
    """*value* as JSON in ASCII, sorted and without spaces; raises ConfigurationUnfit."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"{what} is not JSON: {error}"
        raise ConfigurationUnfit(msg) from None
    if len(text) > LARGEST:
        msg = f"{what} has {len(text):,} bytes of JSON, {LARGEST:,} are allowed: split it"
        raise ConfigurationUnfit(msg)
    return text


def read_canonical(text: bytes | str, what: str = "the value") -> str:
    """What a person wrote, as `canonical` writes it; raises ConfigurationUnfit.

    Refuses what two readers would take for two values: a name that stands twice in one object, and
    numbers that JSON does not have.
    """
    if len(text) > 2 * LARGEST:
        msg = f"{what} has {len(text):,} bytes, {LARGEST:,} of JSON are allowed: split it"
        raise ConfigurationUnfit(msg)
    try:
        written = text.decode() if isinstance(text, bytes) else text
        check_json(written, _BOUNDS)
        value: Any = json.loads(
            written, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite
        )
    except TooMuch as error:
        msg = f"{what} has {error}: it may have {_BOUNDS.nodes:,} values on {_BOUNDS.depth} levels"
        raise ConfigurationUnfit(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{what} is not JSON: {error}"
        raise ConfigurationUnfit(msg) from None
    return canonical(value, what)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"an object has the name {twice[:100]!r} twice"
        raise ValueError(msg)
    return made


def _refuse(text: str) -> Any:
    msg = f"{text} is not a JSON number"
    raise ValueError(msg)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        msg = f"{text[:50]} is too large a number"
        raise ValueError(msg)
    return number
