"""JSON that a person or a client wrote, read so that every reader takes it for the same. Pure.

RFC 8259 leaves open what a name means that stands twice in an object, and JSON has no NaN. Levels
are counted before anything is parsed: a text as deep as Python's stack would be read to its end,
and whatever the collector of garbage ends in that moment finds no stack left.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Final

from angzarr.runtime.json_bounds import Bounds, check_json

#: Characters of a name or a number that a sentence repeats.
_SHOWN: Final = 50
#: Digits of a whole number: Python takes quadratic time for more, and refuses 4,300.
_MOST_DIGITS: Final = 4_000


def read_strictly(text: str, bounds: Bounds) -> Any:
    """The value that *text* says. Raises TooMuch beyond *bounds*, and ValueError with the fault."""
    check_json(text, bounds)
    return json.loads(
        text,
        object_pairs_hook=_once,
        parse_constant=_no_number,
        parse_float=_finite,
        parse_int=_whole,
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = Counter(name for name, _ in pairs)
        twice = next(name for name, times in names.items() if times > 1)
        msg = f"an object has the name {twice[:_SHOWN]!r} twice"
        raise ValueError(msg)
    return made


def _no_number(text: str) -> Any:
    msg = f"{text} is not a JSON number"
    raise ValueError(msg)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        msg = f"{text[:_SHOWN]}… has {len(text)} digits, {_MOST_DIGITS} are read: write it as text"
        raise ValueError(msg)
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        msg = f"{text[:_SHOWN]} is too large a number"
        raise ValueError(msg)
    return number
