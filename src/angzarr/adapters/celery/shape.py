"""Shape: whether a message has the form that Celery takes for granted (celery protocol 2). Pure.

Celery fails on the others wherever it happens to look: in the parent's loop, in a timer after the
task ran, in the child after its success.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.exceptions import InvalidTaskError

from angzarr.adapters.celery.envelope import FIELD, TOLD
from angzarr.events.numbers import NoNumber, read_seconds

#: args, kwargs and what is embedded: callbacks, errbacks, chain, chord.
_PARTS = 3
#: Hard and soft.
_LIMITS = 2
#: What only this worker may say of a request. What a body embeds overrules the fields of a request.
_OURS = frozenset({FIELD, TOLD})


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
    if not isinstance(found.get("id"), str) or not found["id"]:
        msg = f"its id is no text: {found.get('id')!r:.100}"
        raise InvalidTaskError(msg)
    limits = found.get("timelimit")
    if limits and not _are_limits(limits):
        msg = f"its timelimit is not [hard, soft] in seconds: {limits!r:.100}"
        raise InvalidTaskError(msg)
    shadow = found.get("shadow")
    if shadow and not isinstance(shadow, str):
        msg = f"the name that it is shown by is no text: {shadow!r:.100}"
        raise InvalidTaskError(msg)
    stamped, stamps = found.get("stamped_headers"), found.get("stamps")
    if stamped and not _are_names(stamped):
        msg = f"its stamped_headers are no list of names: {stamped!r:.100}"
        raise InvalidTaskError(msg)
    if stamps and not isinstance(stamps, dict):
        msg = f"its stamps are no mapping: {stamps!r:.100}"
        raise InvalidTaskError(msg)


def checked_body(body: Any) -> tuple[Any, dict[str, Any], dict[str, Any] | None]:
    """Return args, kwargs and embed of *body*; raises InvalidTaskError if it has others."""
    if not isinstance(body, list | tuple) or len(body) != _PARTS:
        msg = f"its body is not [args, kwargs, embed] but {_kind(body)}"
        raise InvalidTaskError(msg)
    args, kwargs, embed = body
    if not isinstance(args, list | tuple):
        msg = f"its args are no list but {_kind(args)}"
        raise InvalidTaskError(msg)
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        msg = f"its kwargs are no mapping of names but {_kind(kwargs)}"
        raise InvalidTaskError(msg)
    if embed is not None and not isinstance(embed, dict):
        msg = f"what its body embeds is no mapping but {_kind(embed)}"
        raise InvalidTaskError(msg)
    if embed and (taken := _OURS & embed.keys()):
        msg = f"what its body embeds has names that are this worker's own: {sorted(taken)}"
        raise InvalidTaskError(msg)
    return args, kwargs, embed


def _are_limits(limits: Any) -> bool:
    return (
        isinstance(limits, list | tuple)
        and len(limits) == _LIMITS
        and all(limit is None or _is_span(limit) for limit in limits)
    )


def _is_span(limit: Any) -> bool:
    return not isinstance(read_seconds(limit), NoNumber)


def _are_names(stamped: Any) -> bool:
    return isinstance(stamped, list | tuple) and all(isinstance(name, str) for name in stamped)


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.100}"
