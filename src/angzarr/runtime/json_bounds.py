"""Bounds of what JSON parses to, read from its text before it is parsed. Pure.

Bytes bound nothing: ``[],`` is three of them and sixty once parsed. Counting here makes no object
for each value, and takes a fraction of the time of parsing.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Strings without escapes, whose content is no structure; the last may lack its end.
_STRINGS: Final = re.compile(rb'"[^"]*+"?')
#: What is no structure, and no end of a string.
_NO_STRUCTURE: Final = bytes(one for one in range(256) if one not in b'[]{},:"')
#: What begins or ends a container, both kinds alike, and what is none.
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_VALUES: Final = "values"
_LEVELS: Final = "levels"
_NO_BRACKETS: Final = bytes(one for one in range(256) if one not in b"[]{}")


class Bounds(NamedTuple):
    """The most that a text may parse to: values and keys together, and levels of containers."""

    nodes: int
    depth: int


class TooMuch(ValueError):
    """A text that would parse to more than its bounds; `what` there is too much of."""

    def __init__(self, what: str) -> None:
        super().__init__(f"too many {what}")
        self.what = what


def is_small(text: str | bytes, bounds: Bounds) -> bool:
    """True if *text* is so short that it surely parses to less than *bounds*, at a glance.

    Each node but the first follows on a character of its own.
    """
    return len(text) < bounds.nodes and _begun(text) <= bounds.depth


def check_json(text: str | bytes, bounds: Bounds) -> int:
    """How many nodes *text* parses to at most; raises TooMuch beyond its *bounds*.

    *text* is UTF-8 where it is bytes. Invalid JSON is counted as far as any parser reads it.
    """
    begun = _begun(text)
    if begun <= bounds.depth and (rough := _nodes(text, begun)) <= bounds.nodes:
        return rough  # its strings counted as if they were structure
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    bare, strings = _bare(raw, bounds.nodes + 1)
    begun = _begun(bare)
    nodes = _nodes(bare, begun)
    if max(nodes, strings) > bounds.nodes:
        raise TooMuch(_VALUES)
    if begun > bounds.depth and _is_deeper(bare, bounds.depth):
        raise TooMuch(_LEVELS)
    return nodes


def _bare(raw: bytes, most: int) -> tuple[bytes, int]:
    """The structure of *raw*, and the number of further strings taken out: *most* at most.

    Step by step, each of which costs the text and makes no object for each string: escapes, all
    that is not structure, strings that are empty then, those that are not. To take two quotes out
    that stand together leaves what is in a string in one, whichever two they are.
    """
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    bare = raw.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    return _STRINGS.subn(b"", bare, most) if b'"' in bare else (bare, 0)


def _begun(text: str | bytes) -> int:
    """How many containers *text* begins, and so the most levels that it has."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _nodes(text: str | bytes, begun: int) -> int:
    """How many values and keys *text* has at most: each follows on one of these."""
    if isinstance(text, str):
        return 1 + begun + text.count(",") + text.count(":")
    return 1 + begun + text.count(b",") + text.count(b":")


def _is_deeper(bare: bytes, levels: int) -> bool:
    """True if *bare*, which has no strings, opens more than *levels* containers in another.

    Each pass takes the innermost away, so that a pass costs the text and there are few of them.
    """
    left = bare.translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(levels):
        less = left.replace(b"[]", b"")
        if len(less) == len(left):
            break
        left = less
    return left.count(b"[") > levels if b"[]" not in left else True
