"""Checks that a message has the form that Celery takes for granted. Pure.

Celery fails on other messages wherever it first looks: in the parent's loop, in a timer after the
task ran, or in the child after its success. Messages of protocol 1 (Celery 3, other languages) are
rewritten as protocol 2, because the headers of a copy must hold their id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from celery.app.task import Context
from celery.exceptions import InvalidTaskError
from kombu.utils.encoding import safe_repr
from kombu.utils.json import dumps

from angzarr.adapters.celery.envelope import FIELD, TOLD
from angzarr.events.headers import MAX_NUMBER, NoNumber, read_number, read_seconds

#: args, kwargs and what is embedded: callbacks, errbacks, chain, chord.
_PARTS = 3
#: Hard and soft.
_LIMITS = 2
#: What nearly all bodies embed.
_NO_FOLLOWERS: Final = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
#: What only this worker may say of a request. What a body embeds overrules the fields of a request.
_OURS = frozenset({FIELD, TOLD})
#: What Celery itself keeps in a request, or calls on it: a field of that name would hide it.
_OF_CELERY: Final = frozenset(
    {name for name, value in vars(Context).items() if callable(value) or name.startswith("_")}
)
#: What Celery counts on from, where it is said at all.
COUNTED: Final = frozenset({"retries", "replaced_task_nesting"})
#: What Celery writes over, whatever a message says; what a body embeds comes after it.
_WRITTEN_OVER: Final = frozenset(
    {"args", "kwargs", "delivery_info", "properties", "is_eager", "called_directly", "hostname",
     "task"}
)  # fmt: skip


def check_message(message: Any) -> None:
    """Raise InvalidTaskError, or what decoding raises, if *message* is not of protocol 1 or 2."""
    headers, payload = message.headers, message.payload
    if isinstance(payload, dict) and "args" in payload:  # protocol 1, or half of it
        check_headers({**headers, **payload} if isinstance(headers, dict) else payload)
        checked_body((payload["args"], payload.get("kwargs") or {}, None))
        return
    if not isinstance(headers, dict) or not isinstance(headers.get("task"), str):
        msg = f"its headers name no task: {headers!r:.100}"
        raise InvalidTaskError(msg)
    check_headers(headers)
    checked_body(payload)


def check_headers(found: Mapping[str, Any]) -> None:
    """Raise InvalidTaskError, saying which header is malformed."""
    if not _is_text(found.get("id")) or not found["id"]:
        msg = f"its id is not a string: {_shown(found.get('id'))}"
        raise InvalidTaskError(msg)
    check_fields(found)


def check_fields(found: Mapping[str, Any]) -> None:
    """Raise InvalidTaskError unless all that *found* says of a request has the type it must have.

    Celery reads them in the parent and in the child, amid a run and after it, and looks at none.
    """
    field_of = _FIELDS.get
    for name, value in found.items():
        if value is None or (field := field_of(name)) is None:
            continue
        if not field[0](value):
            msg = f"its {name} is not {field[1]}: {_shown(value)}"
            raise InvalidTaskError(msg)
    if not _HIDING.isdisjoint(found):
        hiding = next(name for name in found if name in _HIDING)
        msg = f"it has a field that is Celery's own: {hiding}"
        raise InvalidTaskError(msg)


def sound_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of *found* that Celery reads and that have the right type."""
    return {
        name: value
        for name, value in found.items()
        if value is not None and (field := _FIELDS.get(name)) is not None and field[0](value)
    }


def checked_body(body: Any) -> tuple[Any, dict[str, Any], dict[str, Any] | None]:
    """The args, kwargs and embed of *body*; raises InvalidTaskError if it has others."""
    if not isinstance(body, list | tuple) or len(body) != _PARTS:
        msg = f"its body is not [args, kwargs, embed] but {_kind(body)}"
        raise InvalidTaskError(msg)
    args, kwargs, embed = body
    if not isinstance(args, list | tuple):
        msg = f"its args are not a list but {_kind(args)}"
        raise InvalidTaskError(msg)
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        msg = f"its kwargs are not a mapping of names but {_kind(kwargs)}"
        raise InvalidTaskError(msg)
    if embed is not None and not isinstance(embed, dict):
        msg = f"the options in its body are not a mapping but {_kind(embed)}"
        raise InvalidTaskError(msg)
    if embed and embed != _NO_FOLLOWERS:
        check_embedded(embed)
    return args, kwargs, embed


def check_embedded(embed: Mapping[str, Any]) -> None:
    """Raise InvalidTaskError for what a body may not embed, which goes before the headers."""
    if taken := _OURS & embed.keys():
        msg = f"what its body embeds has names that are this worker's own: {sorted(taken)}"
        raise InvalidTaskError(msg)
    if taken := _WRITTEN_OVER & embed.keys():
        msg = f"what its body embeds has names of what its worker says of it: {sorted(taken)}"
        raise InvalidTaskError(msg)
    for name in COUNTED.intersection(embed):
        if embed[name] is None:
            msg = f"what its body embeds has no number as {name}"
            raise InvalidTaskError(msg)
    check_fields(embed)


def _is_text(value: Any) -> bool:
    """True if *value* is text that can be written: half a character cannot."""
    if not isinstance(value, str):
        return False
    if value.isascii():  # nearly all are
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    if type(value) is int and 0 <= value <= MAX_NUMBER:
        return True
    return type(value) is not str and not isinstance(read_number(value), NoNumber)


def _is_flag(value: Any) -> bool:
    return isinstance(value, int)


def _is_time(value: Any) -> bool:
    return bool(value) and isinstance(value, str | datetime)


def _is_span(limit: Any) -> bool:
    return not isinstance(read_seconds(limit), NoNumber)


_NO_LIMITS: Final[tuple[Any, ...]] = ([None, None], (None, None), [], ())


def _are_limits(limits: Any) -> bool:
    return limits in _NO_LIMITS or (
        isinstance(limits, list | tuple)
        and len(limits) == _LIMITS
        and all(limit is None or _is_span(limit) for limit in limits)
    )


def _are_names(names: Any) -> bool:
    return isinstance(names, list | tuple) and all(map(_is_text, names))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_signature(value: Any) -> bool:
    return isinstance(value, dict) and _is_text(value.get("task"))


def _are_signatures(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_signature, value))


def _are_followers(value: Any) -> bool:
    """True if *value* is a list of tasks to send, each whole or by its name alone."""
    return isinstance(value, list | tuple) and all(
        _is_signature(one) or _is_text(one) for one in value
    )


def _shown(value: Any) -> str:
    return str(safe_repr(value))[:100]  # a huge int has no text


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {_shown(value)}"


_Field = tuple[Callable[[Any], bool], str]
_TEXT: Final[_Field] = (_is_text, "text")
_NUMBER: Final[_Field] = (_is_number, "a whole number, 0 or more")
_FLAG: Final[_Field] = (_is_flag, "true or false")
_TIME: Final[_Field] = (_is_time, "a time")
_SECONDS: Final[_Field] = (_is_span, "a number of seconds")
_NAMES: Final[_Field] = (_are_names, "a list of names")
_MAPPING: Final[_Field] = (_is_mapping, "a mapping")
_FOLLOWERS: Final[_Field] = (_are_followers, "a list of tasks")

#: What Celery reads of a request, by name. None stands for what is not said.
_FIELDS: Final[Mapping[str, _Field]] = {
    "id": _TEXT,
    "root_id": _TEXT,
    "parent_id": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "group": _TEXT,
    "taskset": _TEXT,
    "group_index": _NUMBER,
    "groups": _NAMES,
    "replaced_task_nesting": _NUMBER,
    "retries": _NUMBER,
    "lang": _TEXT,
    "origin": _TEXT,
    "shadow": _TEXT,
    "argsrepr": _TEXT,
    "kwargsrepr": _TEXT,
    "ignore_result": _FLAG,
    "eta": _TIME,
    "expires": _TIME,
    "utc": _FLAG,
    "timelimit": (_are_limits, "[hard, soft] in seconds"),
    "time_limit": _SECONDS,
    "soft_time_limit": _SECONDS,
    "stamped_headers": _NAMES,
    "stamps": _MAPPING,
    "headers": _MAPPING,
    "callbacks": (_are_signatures, "a list of tasks"),
    "errbacks": _FOLLOWERS,
    "chain": _FOLLOWERS,
    "chord": (_is_signature, "a task"),
}

#: Names that would hide something of Celery's.
_HIDING: Final = _OF_CELERY - _FIELDS.keys()

#: What protocol 2 has as headers and protocol 1 in its body.
_HEADERS: Final = (
    "task", "id", "eta", "expires", "retries", "timelimit", "group", "argsrepr", "kwargsrepr",
)  # fmt: skip


class Upgraded(NamedTuple):
    """A message of protocol 2, in JSON."""

    body: str
    headers: dict[str, Any]


def upgraded(body: Any, told: Mapping[str, Any]) -> Upgraded:
    """The message of *body* (args, kwargs, embed) and of the other fields, *told*."""
    headers = {name: told[name] for name in _HEADERS if told.get(name) is not None}
    custom = told.get("headers")
    return Upgraded(
        dumps(list(body)), {**(custom if isinstance(custom, dict) else {}), "lang": "py", **headers}
    )
