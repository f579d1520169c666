"""Edit: other data for one event, given by a person before its replay (spec A5). Pure.

Hidden values stay hidden: where a person leaves a mark, the original value is put back, and a value
that replaces a mark is hidden, too. An app hides what its own settings name, and what the worker
hid that filed the letter.

Differences are shown so that they are seen. Lists are compared item by item, and a value that is
cut is cut around the first character that differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.dead_letters.masking import MARK
from angzarr.dead_letters.metadata import REDACTED, SIGNATURES
from angzarr.dead_letters.redaction import REPRS
from angzarr.events import headers as names
from angzarr.payloads.body_sealer import SEALED
from angzarr.payloads.claim_check import without_check
from angzarr.runtime.json_bounds import Bounds, TooMuch
from angzarr.runtime.strict_json import read_strictly

#: Differences that are shown; characters of a value or a pointer that are.
MOST_TOLD: Final = 100
_LONGEST: Final = 200
#: Characters before the first that differs, where a value is cut.
_BEFORE: Final = 60
_CUT: Final = "…"
#: The text for a change that may not be seen.
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
    """The differences of *after* from *before*, at most `MOST_TOLD` and one that says so."""
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
    """The differences of *after* from *before*, and one if hidden parts of the wholes differ."""
    told = {place for place, _, _ in _pairs(before, after, None)}
    seen = differences(before, after)
    if any(place not in told for place, _, _ in _pairs(whole_before, whole_after, None)):
        seen.append(Difference("", "", UNSEEN))
    return tuple(seen)


def encrypted_differences(changes: Iterable[Difference]) -> tuple[Difference, ...]:
    """The places of *changes*, without the values: those are encrypted wherever they are kept."""
    return tuple(Difference(one.pointer, SEALED, SEALED) for one in changes)


def is_cut(changes: Iterable[Difference]) -> bool:
    """True if something of *changes* was left out or cut."""
    return any(text.startswith(_CUT) or text.endswith(_CUT) for one in changes for text in one)


def pointer_token(name: object) -> str:
    """*name* as a part of a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def short(text: str) -> str:
    """*text*, cut at its end if it is long."""
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
    """*value* as text that is the same for the same JSON; 1, 1.0 and true are not."""
    if value is _ABSENT:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)


def _difference(at: _Place, before: Any, after: Any) -> Difference:
    return Difference(short(_pointer(at)), *_around(_told(before), _told(after)))


def _told(value: Any) -> str:
    return "" if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=str)


def _around(before: str, after: str) -> tuple[str, str]:
    """Both texts, long ones cut around the first character in which they differ."""
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


#: What stands for a value that may not be seen.
HIDDEN: Final = (MARK, SEALED)


def hidden_as(data: Any, filed: Any) -> Any:
    """*data* with a mark wherever *filed*, the data as its letter was filed, has one."""
    if _is_mark(filed):
        return filed
    if isinstance(data, Mapping) and isinstance(filed, Mapping):
        return {
            name: hidden_as(value, filed[name]) if name in filed else value
            for name, value in data.items()
        }
    if isinstance(data, list) and isinstance(filed, list):
        both = [hidden_as(*pair) for pair in zip(data, filed, strict=False)]
        return both + data[len(both) :]
    return data


def touches_hidden(view: Any, given: Any) -> bool:
    """True if *given* has something else where *view* has a mark.

    Also if that is the very value that is hidden: it must not be found out by trying.
    """
    if _is_mark(view):
        return bool(given != view)
    if isinstance(view, Mapping):
        theirs = given if isinstance(given, Mapping) else {}
        return any(touches_hidden(value, theirs.get(name)) for name, value in view.items())
    if isinstance(view, list):
        longer = [*(given if isinstance(given, list) else ()), *(None for _ in view)]
        return any(touches_hidden(*pair) for pair in zip(view, longer, strict=False))
    return False


def _is_mark(value: Any) -> bool:
    return isinstance(value, str) and value in HIDDEN


#: Characters of JSON that an edit may have, and levels that it may be nested.
LARGEST: Final = 1_000_000
DEEPEST: Final = 50
_JSON: Final = "application/json"
_ABSENT: Final = object()


class Unfit(Refusal):
    """The fault of the data that a person gave; other data may do."""

    __slots__ = ()


def read_data(text: str, *, around: int = 0) -> Any:
    """The JSON value that a person wrote, or an Unfit that says what is wrong with it.

    The data may be within *around* levels of something else.
    """
    if len(text) > LARGEST:
        return Unfit(f"the data has more than {LARGEST} characters")
    try:
        return read_strictly(text, Bounds(nodes=LARGEST, depth=DEEPEST + around))
    except TooMuch:  # of levels; a text has fewer values than characters
        return Unfit(f"the data is nested deeper than {DEEPEST} levels")
    except ValueError as error:
        return Unfit(f"the data is not JSON: {error}")


def data_in(letter: DeadLetter) -> Any:
    """The data in *letter*'s message: an event's, or all arguments of a plain task."""
    parts = _parts(letter)
    if isinstance(parts, Refusal):
        return parts
    args, kwargs, _ = parts
    return args[0] if len(args) == 1 and not kwargs else {"args": args, "kwargs": kwargs}


def with_data(letter: DeadLetter, data: Any) -> DeadLetter | Refusal:
    """*letter* with *data* in its message, in the place where `data_in` found it."""
    parts = _parts(letter)
    if isinstance(parts, Refusal):
        return parts
    args, kwargs, embed = parts
    if len(args) == 1 and not kwargs:
        args = [data]
    elif _is_call(data):
        args, kwargs = data["args"], data["kwargs"]
    else:
        return Unfit('the data of this task is an object with "args" (a list) and "kwargs"')
    headers = {**without_check(letter.message.headers), **dict.fromkeys(REPRS, "")}
    message = replace(
        letter.message, body=json.dumps([args, kwargs, embed]).encode(), headers=headers
    )
    event = letter.event and replace(letter.event, data=data)
    return replace(letter, message=message, event=event)


def bare(letter: DeadLetter) -> DeadLetter:
    """*letter*, which was opened, as one that is not protected yet."""
    own = {REDACTED, *SIGNATURES}
    metadata = {name: value for name, value in letter.metadata.items() if name not in own}
    return replace(letter, metadata=metadata)


def named(letter: DeadLetter, edit: str) -> DeadLetter:
    """*letter* with the header that names the edit."""
    headers = {**letter.message.headers, names.EDIT: edit}
    return replace(letter, message=replace(letter.message, headers=headers))


def restored(data: Any, shown: Any, whole: Any) -> Any:
    """*data* with the values of *whole* where it has the marks that *shown* has.

    Returns an Unfit for a mark anywhere else: it would be sent as if it were the value.
    """
    found: list[str] = []
    value = _restored(data, shown, whole, "", found)
    if found:
        return Unfit(
            f"{short(found[0]) or 'the data'} is a mark of a hidden value, which stood elsewhere:"
            " give the value, or leave it where it was"
        )
    return value


def _restored(data: Any, shown: Any, whole: Any, at: str, found: list[str]) -> Any:
    if isinstance(data, str) and data in HIDDEN:
        if data == shown and whole is not _ABSENT:
            return whole
        found.append(at)
        return data
    if isinstance(data, Mapping):
        theirs, ours = _children(shown, Mapping), _children(whole, Mapping)
        return {
            name: _restored(
                value,
                theirs.get(name),
                ours.get(name, _ABSENT),
                f"{at}/{pointer_token(name)}",
                found,
            )
            for name, value in data.items()
        }
    if isinstance(data, list):
        same = isinstance(shown, list) and isinstance(whole, list) and len(shown) == len(data)
        pairs = zip(shown, whole, strict=False) if same else iter(())
        sides = [*pairs, *((None, _ABSENT) for _ in data)]
        return [
            _restored(value, *sides[index], f"{at}/{index}", found)
            for index, value in enumerate(data)
        ]
    return data


def _parts(letter: DeadLetter) -> tuple[list[Any], dict[str, Any], Any] | Refusal:
    message = letter.message
    if message.content_type != _JSON:
        return Refusal(f"its message is {message.content_type}, not JSON: it cannot be edited")
    try:
        args, kwargs, embed = json.loads(message.body)
        return list(args), dict(kwargs), embed
    except (ValueError, TypeError, RecursionError):
        return Refusal("its message holds no arguments: it cannot be edited")


def _is_call(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and data.keys() == {"args", "kwargs"}
        and isinstance(data["args"], list)
        and isinstance(data["kwargs"], dict)
    )


def _children(value: Any, kind: type) -> Any:
    return value if isinstance(value, kind) else {}
