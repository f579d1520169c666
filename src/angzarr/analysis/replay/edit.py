"""Edit: other data for one event, given by a person before its replay (spec A5). Pure.

Hidden values stay hidden: where a person leaves a mark, the original value is put back, and a value
that replaces a mark is hidden, too. An app hides what its own settings name, and what the worker
hid that filed the letter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from angzarr.analysis.replay.edit_differences import pointer_token, short
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.dead_letters.masking import MARK
from angzarr.dead_letters.metadata import REDACTED, SIGNATURES
from angzarr.dead_letters.protection import SEALED
from angzarr.dead_letters.redaction import REPRS
from angzarr.events import headers as names

#: What stands for a value that may not be seen.
HIDDEN: Final = (MARK, SEALED)


def hidden_as(data: Any, filed: Any) -> Any:
    """Return *data* with a mark wherever *filed*, the data as its letter was filed, has one."""
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

    Also if that is the very value that is hidden: nobody may find it out by trying.
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
    """What is wrong with the data that a person gave; other data may do."""

    __slots__ = ()


_TOO_DEEP: Final = Unfit(f"the data is nested deeper than {DEEPEST} levels")


def read_data(text: str, *, around: int = 0) -> Any:
    """The JSON value that a person wrote, or an Unfit that says what is wrong with it.

    The data may be within *around* levels of something else.
    """
    if len(text) > LARGEST:
        return Unfit(f"the data has more than {LARGEST} characters")
    try:
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_number
        )
    except RecursionError:
        return _TOO_DEEP
    except ValueError as error:
        return Unfit(f"the data is not JSON: {error}")
    return _TOO_DEEP if _is_deeper(value, DEEPEST + around) else value


def data_in(letter: DeadLetter) -> Any:
    """The data in *letter*'s message: an event's, or all arguments of a plain task."""
    parts = _parts(letter)
    if isinstance(parts, Refusal):
        return parts
    args, kwargs, _ = parts
    return args[0] if len(args) == 1 and not kwargs else {"args": args, "kwargs": kwargs}


def with_data(letter: DeadLetter, data: Any) -> DeadLetter | Refusal:
    """Return *letter* with *data* in its message, in the place where `data_in` found it."""
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
    headers = {**letter.message.headers, **dict.fromkeys(REPRS, "")}
    message = replace(
        letter.message, body=json.dumps([args, kwargs, embed]).encode(), headers=headers
    )
    event = letter.event and replace(letter.event, data=data)
    return replace(letter, message=message, event=event)


def bare(letter: DeadLetter) -> DeadLetter:
    """Return *letter*, which was opened, as one that nobody has protected yet."""
    own = {REDACTED, *SIGNATURES}
    metadata = {name: value for name, value in letter.metadata.items() if name not in own}
    return replace(letter, metadata=metadata)


def named(letter: DeadLetter, edit: str) -> DeadLetter:
    """Return *letter* with the header that names the edit."""
    headers = {**letter.message.headers, names.EDIT: edit}
    return replace(letter, message=replace(letter.message, headers=headers))


def restored(data: Any, shown: Any, whole: Any) -> Any:
    """Return *data* with the values of *whole* where it has the marks that *shown* has.

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


def _is_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [
            child
            for one in level
            for child in (
                one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            )
        ]
        if not level:
            return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        msg = "an object says one name twice"
        raise ValueError(msg)
    return made


def _no_number(text: str) -> Any:
    msg = f"{text} is not a JSON number"
    raise ValueError(msg)


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        msg = f"{short(text)} is too large a number"
        raise ValueError(msg)
    return number
