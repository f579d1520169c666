"""Names of a spool's files: a listing alone tells order, size and whose letter it is. Pure.

``<time>-<process>-<number>-<size>-<letter id>.letter``, the time in UTC, e.g.
``20261122T083256.123456Z-9f1c03aa-00000001-2113-2c26b46b….letter``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from angzarr.dead_letters.forwarding import Spooled

_TIME: Final = "%Y%m%dT%H%M%S.%fZ"
_LETTER: Final = re.compile(
    r"(\d{8}T\d{6}\.\d{6}Z)-[0-9a-f]{8}-\d{8,}-(\d{1,15})-([0-9A-Za-z_.-]{1,100})\.letter", re.ASCII
)
_PLAIN_ID: Final = re.compile(r"[0-9A-Za-z_.-]{1,100}", re.ASCII)


def name_of(at: datetime, process: str, number: int, size: int, letter_id: str) -> str:
    """Return the name of a letter's file; an id that no name can hold is given as its hash."""
    plain = _PLAIN_ID.fullmatch(letter_id)
    shown = (
        letter_id
        if plain
        else hashlib.sha256(letter_id.encode("utf-8", "surrogatepass")).hexdigest()
    )
    return f"{at.strftime(_TIME)}-{process}-{number:08d}-{size}-{shown}.letter"


def letters_among(names: Iterable[str]) -> list[Spooled]:
    """Return the letters among *names* of files, oldest first."""
    found = (_letter(name) for name in sorted(names))
    return [one for one in found if one is not None]


def _letter(name: str) -> Spooled | None:
    if (found := _LETTER.fullmatch(name)) is None:
        return None
    try:
        at = datetime.fromisoformat(found[1])
    except ValueError:  # somebody else's file
        return None
    return Spooled(name, at, int(found[2]), found[3])
