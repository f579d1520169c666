"""Numbers: the one reader of every number that comes from a header, a property or a row. Pure.

What a queue says is hostile: ``int()`` of a Decimal takes minutes, `math.isfinite` raises on a
large int, and ``True`` passes for 1. Absent, malformed and too large are three answers.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

#: Attempts, hops, replays and depths: a store holds 32 bits, and ours are counted on from them.
MAX_NUMBER: Final = 2**30
#: Sequences: what the wire's uint32 holds. `publish` refuses more.
MAX_SEQUENCE: Final = 2**32 - 1
#: Seconds of a time limit: a hundred years.
MAX_SECONDS: Final = 100 * 366 * 86400

#: Digits of a number that is written as text.
_MOST_DIGITS: Final = 10


class NoNumber(Enum):
    """Why there is no number."""

    ABSENT = "absent"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"


def read_number(value: object, most: int = MAX_NUMBER) -> int | NoNumber:
    """Return *value* as an int from 0 to *most*, or why it is none.

    Taken are an int, a whole float, and text of at most ten digits. A negative one is malformed.
    """
    if type(value) is int:  # a bool is none
        return _bounded(value, most)
    if value is None:
        return NoNumber.ABSENT
    if type(value) is float:
        return _bounded(int(value), most) if _is_whole(value) else NoNumber.MALFORMED
    if type(value) is str and value.isascii() and value.isdigit():
        return _bounded(int(value), most) if len(value) <= _MOST_DIGITS else NoNumber.TOO_LARGE
    return NoNumber.MALFORMED


def read_seconds(value: object, most: float = MAX_SECONDS) -> float | NoNumber:
    """Return *value* as seconds from 0 to *most*, or why it is none; text is none."""
    if value is None:
        return NoNumber.ABSENT
    if type(value) is not int and type(value) is not float:
        return NoNumber.MALFORMED
    if not value >= 0:  # nor is NaN
        return NoNumber.MALFORMED
    return value if value <= most else NoNumber.TOO_LARGE


def number_or(value: object, default: int, most: int = MAX_NUMBER) -> int:
    """Return *value* as `read_number` does, and *default* where it is none."""
    if value is None:  # most headers are absent
        return default
    number = read_number(value, most)
    return default if isinstance(number, NoNumber) else number


def _bounded(number: int, most: int) -> int | NoNumber:
    if number < 0:
        return NoNumber.MALFORMED
    return number if number <= most else NoNumber.TOO_LARGE


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value.is_integer()
