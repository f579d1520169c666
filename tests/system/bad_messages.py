"""Messages that Celery drops, dies of or loops on, each with the code of the letter it becomes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

TASK = "road_app.add"


class Bad(NamedTuple):
    """A message as it is published: raw body, what is said of it, and what its letter says."""

    name: str
    body: bytes
    code: str
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    headers: Mapping[str, Any] = MappingProxyType({})


def good_headers(**changes):
    headers = {
        "lang": "py", "task": TASK, "id": str(uuid.uuid4()), "retries": 0, "eta": None,
        "expires": None, "timelimit": [None, None], "argsrepr": "", "kwargsrepr": "",
    }  # fmt: skip
    return {**headers, **changes}


def without(name):
    return {key: value for key, value in good_headers().items() if key != name}


GZIP, NO_ZIP = "application/x-gzip", "x-none"
PICKLE = "application/x-python-serialize"
GOOD = json.dumps([[1, 1], {}, {}]).encode()


def all_bad() -> list[Bad]:
    """Return every row, each with an id of its own."""
    ok = good_headers
    return [
        Bad("body is no JSON", b"\xff{not json", "UNDECODABLE", headers=ok()),
        Bad("body is cut", b"[[1, 1], {}, ", "UNDECODABLE", headers=ok()),
        Bad("body nested too deep", b"[" * 100_000, "UNDECODABLE", headers=ok()),
        Bad("body is no gzip", b"no gzip", "UNDECODABLE", headers=ok(compression=GZIP)),
        Bad("compression unknown", b"zipped", "UNDECODABLE", headers=ok(compression=NO_ZIP)),
        Bad("pickle", b"\x80\x04N.", "INVALID_TASK", PICKLE, "binary", ok()),
        Bad("content type unknown", GOOD, "INVALID_TASK", "application/x-none", "utf-8", ok()),
        Bad("no task: an event of others", b'{"order": 1}', "FOREIGN_MESSAGE", headers={"a": "b"}),
        Bad("no task and no JSON", b"\xff\xfe", "UNDECODABLE", headers={}),
        Bad("body is null", b"null", "INVALID_TASK", headers=ok()),
        Bad("body is text", b'"hello"', "INVALID_TASK", headers=ok()),
        Bad("body is a number", b"7", "INVALID_TASK", headers=ok()),
        Bad("body is empty", b"", "INVALID_TASK", headers=ok()),
        Bad("body has two items", b"[[1, 1], {}]", "INVALID_TASK", headers=ok()),
        Bad("args are no list", b'[{"a": 1}, {}, {}]', "INVALID_TASK", headers=ok()),
        Bad("kwargs are a list", b"[[1, 1], [1], {}]", "INVALID_TASK", headers=ok()),
        Bad("embed is a list", b"[[1, 1], {}, [1]]", "INVALID_TASK", headers=ok()),
        Bad("embed has our field", b'[[1, 1], {}, {"angzarr": "x"}]', "INVALID_TASK", headers=ok()),
        Bad("embed hides our field", b'[[1, 1], {}, {"angzarr": null}]', "INVALID_TASK",
            headers=ok()),
        Bad("shadow is a list", GOOD, "INVALID_TASK", headers=ok(shadow=["x"])),
        Bad("no id", GOOD, "INVALID_TASK", headers=without("id")),
        Bad("id is a number", GOOD, "INVALID_TASK", headers=ok(id=7)),
        Bad("id is empty", GOOD, "INVALID_TASK", headers=ok(id="")),
        Bad("task is a number", GOOD, "UNKNOWN_TASK", headers=ok(task=7)),
        Bad("timelimit is text", GOOD, "INVALID_TASK", headers=ok(timelimit="soon")),
        Bad("timelimit has words", GOOD, "INVALID_TASK", headers=ok(timelimit=["a", "b"])),
        Bad("timelimit has three", GOOD, "INVALID_TASK", headers=ok(timelimit=[1, 2, 3])),
        Bad("timelimit is negative", GOOD, "INVALID_TASK", headers=ok(timelimit=[-1, None])),
        Bad("eta is no time", GOOD, "INVALID_TASK", headers=ok(eta="tomorrow")),
        Bad("expires is no time", GOOD, "INVALID_TASK", headers=ok(expires="never")),
        Bad("stamps are text", GOOD, "INVALID_TASK", headers=ok(stamps="x", stamped_headers=["a"])),
        Bad("stamped headers are a number", GOOD, "INVALID_TASK", headers=ok(stamped_headers=7)),
        Bad("unknown task", GOOD, "UNKNOWN_TASK", headers=ok(task="nobody.knows")),
        Bad("arguments do not fit", b"[[1], {}, {}]", "UNDELIVERABLE", headers=ok()),
        Bad("expired", GOOD, "EXPIRED", headers=ok(expires="2020-01-01T00:00:00+00:00")),
    ]  # fmt: skip
