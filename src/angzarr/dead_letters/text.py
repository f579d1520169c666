"""Text forms of values: any header value as JSON and back, any string as valid UTF-8.

Writing never fails: a letter that could not be written would be a message lost.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import orjson

_DICT: Final = "$dict"
_TUPLE: Final = "$tuple"
_TEXT: Final = "$text"
#: What the one key of an object begins with that stands for a value.
_MARK: Final = "$"
#: A float may be none that JSON knows.
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_STR: Final = frozenset({str})
#: Levels of containers that are written. Each costs three of Python's thousand frames.
_DEEPEST: Final = 100

#: Values JSON has no word for: their tag, and the way to text; a datetime comes before its date.
_TO_TEXT: Final[tuple[tuple[type, str, Callable[[Any], str]], ...]] = (
    (bytes, "$bytes", lambda value: base64.b64encode(value).decode()),
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", time.isoformat),
    (Decimal, "$decimal", str),
    (uuid.UUID, "$uuid", str),
    (float, "$float", repr),
)
_FROM_TEXT: Final[dict[str, Callable[[str], Any]]] = {
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$decimal": Decimal,
    "$uuid": uuid.UUID,
    "$float": float,
    _TEXT: str,
}


#: A number of so many digits may be larger than orjson reads exactly. All digits are made alike.
_LONG_NUMBER: Final = b"0" * 19
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")

_to_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_from_json: Final = json.JSONDecoder().decode


def to_json_text(value: object) -> str:
    """Write *value* as JSON text from which `from_json_text` makes an equal value.

    What has no JSON form and no tag (an object of somebody's class) is written as its repr. Of a
    mapping, a value that cannot be written (see `exact_json_text`) is a text that says so; the
    others are there.
    """
    with contextlib.suppress(RecursionError, ValueError):
        return exact_json_text(value)
    with contextlib.suppress(RecursionError, ValueError):
        return exact_json_text(_in_parts(value))
    return exact_json_text(_note(value))


def exact_json_text(value: object) -> str:
    """Write *value* as `to_json_text` does, whole.

    Raises ValueError where it cannot be: what lies more than a hundred levels deep, or in itself.
    The bound is not Python's, which depends on the caller: one value has one text everywhere.
    """
    text = _to_json(value if _is_plain(value, _DEEPEST) else _tagged(value, _DEEPEST))
    return text if _is_valid(text) else json.dumps(json.loads(text))


def from_json_text(text: str) -> Any:
    """Read what `to_json_text` wrote; raises ValueError or TypeError on anything malformed."""
    may_be_tagged = '"$' in text or r"\u0024" in text  # a key may spell its mark in two ways
    return _from_tagged_json(text) if may_be_tagged else read_json_text(text)


def read_json_text(text: str) -> Any:
    """Read JSON as the standard library does, in a third of its time; raises ValueError.

    Large integers, NaN and lone surrogates are left to the library: orjson reads the first as
    floats and refuses the others.
    """
    try:
        raw = text.encode()
        return _from_json(text) if _LONG_NUMBER in raw.translate(_DIGITS) else orjson.loads(raw)
    except ValueError:
        return _from_json(text)


def valid_text(text: str) -> str:
    r"""*text* with lone surrogates, which protobuf refuses, written as ``\udcff``."""
    return text if _is_valid(text) else text.encode("utf-8", "backslashreplace").decode()


def valid_mapping(texts: Mapping[str, str]) -> dict[str, str]:
    """*texts* with keys and values as protobuf takes them."""
    if all(map(str.isascii, texts)) and all(map(str.isascii, texts.values())):
        return dict(texts)
    return {valid_text(key): valid_text(value) for key, value in texts.items()}


def valid_tree(value: Any) -> Any:
    """JSON *value* with every text in it, keys included, as protobuf takes it."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {valid_text(key): valid_tree(item) for key, item in value.items()}
    return [valid_tree(item) for item in value] if isinstance(value, list) else value


def _is_valid(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_parts(value: object) -> object:
    if not isinstance(value, Mapping):
        return _note(value)
    return {key: item if _can_be_written(item) else _note(item) for key, item in value.items()}


def _note(value: object) -> str:
    return f"<{type(value).__name__} that cannot be written as JSON>"


def _can_be_written(value: object) -> bool:
    try:
        exact_json_text([value])
    except (RecursionError, ValueError):
        return False
    return True


def _is_plain(value: object, levels: int) -> bool:
    """True if *value* is surely what JSON has words for, at a glance."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if levels == 0:
        return False
    if isinstance(value, dict):
        return (
            kind is dict
            and _STR.issuperset(map(type, value))
            and not (len(value) == 1 and next(iter(value)).startswith(_MARK))
            and _are_plain(value.values(), levels - 1)
        )
    return kind is list and isinstance(value, list) and _are_plain(value, levels - 1)


def _are_plain(values: Collection[object], levels: int) -> bool:
    return all(_is_plain(value, levels) for value in values if type(value) not in _PLAIN)


def _tagged(value: object, levels: int) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if not isinstance(value, Mapping | tuple | list):
        return _tagged_scalar(value)
    if levels == 0:
        msg = "nested too deeply"
        raise ValueError(msg)
    if isinstance(value, Mapping):
        return _tagged_mapping(value, levels - 1)
    items = [_tagged(item, levels - 1) for item in value]
    return {_TUPLE: items} if isinstance(value, tuple) else items


def _tagged_scalar(value: object) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return value
    for kind, tag, to_text in _TO_TEXT:
        if isinstance(value, kind):
            return {tag: to_text(value)}
    return {_TEXT: repr(value)}


def _tagged_mapping(value: Mapping[Any, Any], levels: int) -> dict[str, Any]:
    looks_tagged = len(value) == 1 and str(next(iter(value))).startswith(_MARK)
    if not looks_tagged and all(isinstance(key, str) for key in value):
        return {key: _tagged(item, levels) for key, item in value.items()}
    items = value.items()
    return {_DICT: [[_tagged(key, levels), _tagged(item, levels)] for key, item in items]}


def _untagged(value: dict[str, Any]) -> Any:
    if len(value) != 1:
        return value
    [(tag, content)] = value.items()
    if tag == _DICT:
        return dict(content)
    if tag == _TUPLE:
        return tuple(content)
    read = _FROM_TEXT.get(tag)
    if read is None:
        return value
    if not isinstance(content, str):
        msg = f"{tag} needs text"
        raise TypeError(msg)
    return read(content)


_from_tagged_json: Final = json.JSONDecoder(object_hook=_untagged).decode
