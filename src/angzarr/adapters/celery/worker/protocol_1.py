"""Protocol 1: messages of Celery 3 and of clients in other languages, read as protocol 2. Pure.

Celery still takes them, and those that are half of either. Their id, at least, stands in the body,
where a copy's own headers could not go: a copy, and a letter, is of protocol 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kombu.utils.json import dumps

#: What protocol 2 has as headers and protocol 1 in its body.
_HEADERS: Final = (
    "task", "id", "eta", "expires", "retries", "timelimit", "group", "argsrepr", "kwargsrepr",
)  # fmt: skip


class Upgraded(NamedTuple):
    """A message of protocol 2, in JSON."""

    body: str
    headers: dict[str, Any]


def upgraded(body: Any, told: Mapping[str, Any]) -> Upgraded:
    """Return the message of *body* (args, kwargs, embed) and of what its body *told* besides."""
    headers = {name: told[name] for name in _HEADERS if told.get(name) is not None}
    custom = told.get("headers")
    return Upgraded(
        dumps(list(body)), {**(custom if isinstance(custom, dict) else {}), "lang": "py", **headers}
    )
