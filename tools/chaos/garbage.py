"""Garbage: messages that Celery cannot read, by what is wrong with them. Pure.

Each carries its event id once, in its body or in its headers, so that its letter can be told.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.fates import MAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A message as it goes to the broker, byte for byte."""

    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    #: The bytes are the whole envelope: they are put into the broker's list as they are.
    envelope: bool = False


def raw(kind: str, id: str) -> Raw:
    """Return the message of that *kind* which is to be known by *id*."""
    return KINDS[kind](id) if kind in KINDS else _damaged(id)


def _headers(id: str, **more: Any) -> dict[str, Any]:
    return {
        "lang": "py", "task": MAIN, "id": id, "root_id": id, "parent_id": None, "group": None,
        "retries": 0, "timelimit": [None, None], "eta": None, "expires": None, **more,
    }  # fmt: skip


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _data(id: str) -> dict[str, object]:
    return {"id": id, "fate": "ok", "failures": 0, "seconds": 0, "padding": ""}


def _good(id: str) -> bytes:
    return _json([[_data(id)], {}, {}])


def _with_body(make: Callable[[str], bytes], **more: Any) -> Callable[[str], Raw]:
    return lambda i: Raw(body=make(i), headers=_headers(i), **more)


def _with_header(**wrong: Any) -> Callable[[str], Raw]:
    return lambda i: Raw(body=_good(i), headers=_headers(i, **wrong))


def _without_id(id: str) -> Raw:
    headers = _headers(id)
    del headers["id"], headers["root_id"]
    return Raw(body=_good(id), headers=headers)


def _damaged(id: str) -> Raw:
    return Raw(body=f'{{"body": "{id}", "headers": '.encode(), envelope=True)


#: What is wrong → the message. Source: what stock Celery was seen to drop, loop on or die of.
KINDS: Final[Mapping[str, Callable[[str], Raw]]] = {
    "body cut short": _with_body(lambda i: f'[[{{"id": "{i}"'.encode()),
    "body no text": _with_body(lambda i: b"\xff\xfe\x00" + i.encode()),
    "body pickled": _with_body(
        lambda i: pickle.dumps([[i], {}, {}]),
        content_type="application/x-python-serialize",
        content_encoding="binary",
    ),
    "content type unknown": _with_body(_good, content_type="application/x-nobody-knows"),
    "compression wrong": _with_header(compression="application/x-gzip"),
    "compression unknown": _with_header(compression="application/x-nobody-knows"),
    "foreign event": lambda i: Raw(body=_json({"order": i})),
    "body a string": _with_body(_json),
    "body two items": _with_body(lambda i: _json([[_data(i)], {}])),
    "body null": _with_body(lambda _: b"null"),
    "body empty": _with_body(lambda _: b""),
    "id missing": _without_id,
    "timelimit malformed": _with_header(timelimit="soon"),
    "eta malformed": _with_header(eta="whenever"),
    "expires malformed": _with_header(expires="some day"),
    "args no list": _with_body(lambda _: _json([5, {}, {}])),
    "kwargs no mapping": _with_body(lambda i: _json([[_data(i)], ["x"], {}])),
    "embed no mapping": _with_body(lambda i: _json([[_data(i)], {}, ["x"]])),
}
