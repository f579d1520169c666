"""Spelling: how a value that was taken out of a payload may stand in a text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final
from urllib.parse import quote

from angzarr.dead_letters.words import LONGEST_TEXT, SHORTEST_WORD, Words

#: Numbers of fewer digits, like texts of fewer than `SHORTEST_WORD` characters, are too often
#: something else.
FEWEST_DIGITS: Final = 6
#: Spellings that are looked for, and their characters. Whoever sends a message chooses what there
#: is to spell; so much takes half a second and some tens of megabytes.
MOST_WORDS: Final = 100_000
MOST_CHARACTERS: Final = 10_000_000

#: What every form writes as it is.
_PLAIN: Final = re.compile(r"[\w.~-]*", re.ASCII)


def words_of(values: Iterable[object]) -> Words | None:
    """Return how *values* may stand in a text; None where they are more than can be looked for."""
    texts: set[str] = set()
    words: set[str] = set()
    characters = 0
    for text in (text for value in values for text in _texts(value)):
        if text in texts:
            continue
        texts.add(text)
        fresh = _spellings(text) - words
        words |= fresh
        characters += sum(map(len, fresh))
        if len(words) > MOST_WORDS or characters > MOST_CHARACTERS:
            return None
    return Words(words)


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of *value* that are long enough to be known again."""
    if isinstance(value, bytes):
        yield from _texts(value.decode("utf-8", "replace"))
        value = repr(b'"' + value)[3:-1]
    if isinstance(value, str):
        yield from (text for text in _lines(value) if len(text) >= SHORTEST_WORD)
    elif not isinstance(value, bool):
        written = _written(value)
        if sum(map(str.isdigit, written)) >= FEWEST_DIGITS:
            yield written.removeprefix("-")


def _lines(text: str) -> Iterator[str]:
    """Yield *text* and its lines: a stack may put something before each of them."""
    for one in (text, *map(str.strip, text.splitlines())):
        yield one[:LONGEST_TEXT]
        # No text that is searched holds all of a longer one; what a cut left of it may stand there.
        if len(one) > LONGEST_TEXT:
            yield one[-LONGEST_TEXT:]


def _written(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an int of too many digits, or somebody's own class
        return ""


def _spellings(text: str) -> set[str]:
    """Return *text* as it is, escaped, escaped twice as JSON within JSON is, and as in URLs."""
    if _PLAIN.fullmatch(text):
        return {text}
    escaped = {text, *(escape(text) for escape in _ESCAPES)}
    twice = {escape(one) for one in escaped for escape in _ESCAPES}
    quoted = {quoted for one in escaped for quoted in _quoted(one)}
    return escaped | twice | quoted | {again for one in quoted for again in _quoted_again(one)}


def _within(write: Callable[[str], str]) -> Callable[[str], str]:
    """Return *write* without the quotes that it sets."""
    return lambda text: write(text)[1:-1]


def _beside(write: Callable[[str], str]) -> Callable[[str], str]:
    """Return *write* as it is beside a double quote, where Python escapes the single ones."""
    return lambda text: write('"' + text)[2:-1]


def _quoted(text: str) -> tuple[str, str, str]:
    """Return what `urllib.parse` makes of *text*: for a path, for a part of it, for a query."""
    path = quote(text.encode("utf-8", "replace"))
    part = path.replace("/", "%2F")
    return path, part, part.replace("%20", "+")


def _quoted_again(quoted: str) -> tuple[str, str]:
    """Return what is *quoted* as it is in a URL that is part of a URL."""
    path = quoted.replace("%", "%25").replace("+", "%2B")
    return path, path.replace("/", "%2F")


_ESCAPES: Final = (
    _within(repr),
    _beside(repr),
    _within(ascii),
    _beside(ascii),
    _within(json.dumps),
    _within(partial(json.dumps, ensure_ascii=False)),
)
