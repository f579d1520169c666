"""Canonical JSON of configurations: one text for each value. What people give is hostile. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from angzarr.errors import ConfigurationUnfit
from angzarr.runtime.json_bounds import Bounds, TooMuch
from angzarr.runtime.strict_json import read_strictly

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
    except UnicodeDecodeError:
        written = "\N{ZERO WIDTH NO-BREAK SPACE}"
    if written.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
        msg = f"{what} is not JSON in UTF-8: save it as UTF-8, without a byte order mark"
        raise ConfigurationUnfit(msg)
    try:
        value: Any = read_strictly(written, _BOUNDS)
    except TooMuch as error:
        msg = f"{what} has {error}: it may have {_BOUNDS.nodes:,} values on {_BOUNDS.depth} levels"
        raise ConfigurationUnfit(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{what} is not JSON: {error}"
        raise ConfigurationUnfit(msg) from None
    return canonical(value, what)
