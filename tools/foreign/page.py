"""docs/reference/redis-transport-tests.md: which of kombu's tests run on ours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

_OPENING = """\
# kombu's own tests on our Redis transport

`make test` runs the tests that kombu brings for its Redis transport on ours: the same file, from \
the pinned release, with our transport, channel, poller and QoS in the place of kombu's. Where \
kombu's fake client stands for Redis, ours meets it too; our scripts are tested on real servers \
elsewhere.

| tests | number |
|---|---|
| in kombu {version} | {total} |
| pass on ours | {passed} |
| left out | {left_out} |

Those that pass include tests of what ours takes from kombu as it is: fanout, bindings, batches \
of publishing, Sentinel, TLS, credentials, key prefixes.

Left out is what asserts how kombu does it and not what comes of it, and the differences that the \
last sections tell of. Such a test is still run and must fail; one that passes fails the run. This \
page is written from that list, `tools/foreign/kombu_redis.toml`.
"""


def render(version: str, passed: int, left_out: int, groups: Iterable[dict[str, Any]]) -> str:
    """Return the page; *groups* are those of the list, each with title, why and tests."""
    opening = _OPENING.format(
        version=version, total=passed + left_out, passed=passed, left_out=left_out
    )
    return "\n".join(line for part in (opening, *map(_group, groups)) for line in _wrapped(part))


def _group(group: dict[str, Any]) -> str:
    tests = "\n".join(f"* `{test}`" for test in group["tests"])
    return f"## {group['title']}\n\n{group['why']}\n\n{tests}\n"


def _wrapped(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield from textwrap.wrap(line, 120, break_long_words=False, break_on_hyphens=False) or [""]
