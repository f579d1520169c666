"""EditDifferences: how one event's data differ from another's, told so that it is seen. Pure.

Lists are compared item by item. A value that is cut is cut around the first character that
differs: before and after never look the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

#: Differences that are told; characters of a value or a pointer that are.
MOST_TOLD: Final = 100
_LONGEST: Final = 200
#: Characters before the first that differs, where a value is cut.
_BEFORE: Final = 60
_CUT: Final = "…"
_ABSENT: Final = object()
#: What is told of a change that may not be seen.
UNSEEN: Final = "a hidden value was changed"

#: Where a value is: the place of what holds it, and its name or index there; None: all.
_Place: TypeAlias = "tuple[_Place, str | int] | None"
_Pair: TypeAlias = tuple[_Place, Any, Any]


class Difference(NamedTuple):
    """One change, at a JSON pointer (RFC 6901); values as JSON, empty where there is none."""

    pointer: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.pointer or '(all)'}: {self.before or 'nothing'} → {self.after or 'nothing'}"


class Sides(NamedTuple):
    """All data before an edit and after, as they may be shown."""

    before: Any
    after: Any


def differences(before: Any, after: Any) -> list[Difference]:
    """Return how *after* differs from *before*, at most `MOST_TOLD` and one that says so."""
    found: list[Difference] = []
    for one in _pairs(before, after, None):
        if len(found) == MOST_TOLD:
            found.append(Difference(_CUT, "", "more changes"))
            break
        found.append(_difference(*one))
    return found


def seen_differences(
    before: Any, after: Any, whole_before: Any, whole_after: Any
) -> tuple[Difference, ...]:
    """Return how *after* differs from *before*, and that hidden parts of the wholes differ, too."""
    told = {place for place, _, _ in _pairs(before, after, None)}
    seen = differences(before, after)
    if any(place not in told for place, _, _ in _pairs(whole_before, whole_after, None)):
        seen.append(Difference("", "", UNSEEN))
    return tuple(seen)


def is_cut(changes: Iterable[Difference]) -> bool:
    """True if something of *changes* was left out or cut."""
    return any(text.startswith(_CUT) or text.endswith(_CUT) for one in changes for text in one)


def pointer_token(name: object) -> str:
    """Return *name* as a part of a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def short(text: str) -> str:
    """Return *text*, cut at its end if it is long."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + _CUT


def _pairs(before: Any, after: Any, at: _Place) -> Iterator[_Pair]:
    """The places that differ and what is there on both sides."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in (*before, *(name for name in after if name not in before)):
            sides = before.get(name, _ABSENT), after.get(name, _ABSENT)
            yield from _pairs(*sides, (at, str(name)))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _items(before, after, at)
    elif _json(before) != _json(after):
        yield at, before, after


def _items(before: list[Any], after: list[Any], at: _Place) -> Iterator[_Pair]:
    """Compare item by item; in lists of different length, what is between the ends they share."""
    first = last = 0
    if len(before) != len(after):
        first = _alike(before, after)
        last = _alike(before[first:][::-1], after[first:][::-1])
    middles = before[first : len(before) - last], after[first : len(after) - last]
    for index, sides in enumerate(zip_longest(*middles, fillvalue=_ABSENT), first):
        yield from _pairs(*sides, (at, index))


def _alike(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Count the items with which both begin."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if _json(old) != _json(new):
            break
        count += 1
    return count


def _json(value: Any) -> str:
    """Return *value* as text that is the same for the same JSON; 1, 1.0 and true are not."""
    if value is _ABSENT:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)


def _difference(at: _Place, before: Any, after: Any) -> Difference:
    return Difference(short(_pointer(at)), *_around(_told(before), _told(after)))


def _told(value: Any) -> str:
    return "" if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=str)


def _around(before: str, after: str) -> tuple[str, str]:
    """Return both texts, long ones cut around the first character in which they differ."""
    if max(len(before), len(after)) <= _LONGEST:
        return before, after
    pairs = enumerate(zip(before, after, strict=False))
    shorter = min(len(before), len(after))
    first = next((index for index, (old, new) in pairs if old != new), shorter)
    start = max(first - _BEFORE, 0)
    return _from(before, start), _from(after, start)


def _from(text: str, start: int) -> str:
    return (_CUT if start else "") + short(text[start:])


def _pointer(at: _Place) -> str:
    parts: list[str] = []
    while at is not None:
        at, name = at
        parts.append(f"/{pointer_token(name)}")
    return "".join(reversed(parts))
