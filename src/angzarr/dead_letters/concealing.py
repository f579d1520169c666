"""Concealing: put a mark in place of the values of a tree that paths name. Pure.

Path patterns: which values of a tree a setting names, such as ``**.password``.

Steps are divided by dots: a name (case does not matter) or the index of a list item, ``*`` for any
one step, ``**`` for any number of steps, none included.

Spelling: how a value that was taken out of a payload may stand in a text. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from angzarr.dead_letters.masking import LONGEST_TEXT, MARK, SHORTEST_WORD, Words

#: What is left of each pattern after the steps taken so far; `()` where one is complete.
Rests: TypeAlias = frozenset[tuple[str, ...]]

NOTHING: Final[Rests] = frozenset()
#: Names whatever it is asked about.
ALL: Final[Rests] = frozenset({()})

_ANY: Final = "*"
_DEEP: Final = "**"


def parse(pattern: str) -> tuple[str, ...]:
    """Return the steps of *pattern*; raises ValueError that says what is wrong with it."""
    steps = tuple(pattern.casefold().split("."))
    if not all(steps):
        msg = f"{pattern!r} has an empty step: write a path such as event.card.number"
        raise ValueError(msg)
    if odd := [step for step in steps if "*" in step and step not in (_ANY, _DEEP)]:
        msg = f"{pattern!r} mixes '*' and a name in {odd[0]!r}: '*' and '**' are steps of their own"
        raise ValueError(msg)
    return steps


def start(patterns: Iterable[str]) -> Rests:
    """Return what is left of *patterns* before the first step."""
    return _spread(parse(pattern) for pattern in patterns)


def after(rests: Rests, name: object) -> Rests:
    """Return what is left after a step to *name*, a key or an index."""
    if not rests:
        return NOTHING
    step = str(name).casefold()
    return _spread(
        rest if rest[0] == _DEEP else rest[1:]
        for rest in rests
        if rest and rest[0] in (_DEEP, _ANY, step)
    )


def is_named(rests: Rests) -> bool:
    """Tell whether what was reached is named by a pattern."""
    return () in rests


def _spread(rests: Iterable[tuple[str, ...]]) -> Rests:
    """Add what is left where a ``**`` stands for no step."""
    found = set()
    for rest in rests:
        found.add(rest)
        while rest and rest[0] == _DEEP:
            rest = rest[1:]  # noqa: PLW2901 - each of its shorter forms
            found.add(rest)
    return frozenset(found)


#: Levels that are looked into; what lies deeper is hidden where a path may still lead there.
DEEPEST: Final = 100


@dataclass(slots=True)
class Concealing:
    """One letter's: how many values were replaced, and what was in them.

    Every verb returns what it was given, the same object, where nothing in it is named. Nothing
    is hidden where there is nothing: None, an empty text or container, a mark.
    """

    count: int = 0
    removed: list[Any] = field(default_factory=list)

    def value(self, value: Any, paths: Rests, depth: int = 0) -> Any:
        """Return *value*, to which *paths* are relative."""
        if is_named(paths):
            return self._hidden(value)
        if not paths or not isinstance(value, Mapping | list | tuple):
            return value
        return self._hidden(value) if depth >= DEEPEST else self.children(value, paths, (), depth)

    def named(self, tree: Mapping[str, Any], paths: Rests) -> dict[str, Any]:
        """Return *tree*, whose own values stay containers: what is in them is hidden instead."""
        return {
            name: self.children(value, ALL if is_named(paths) else after(paths, name))
            for name, value in tree.items()
        }

    def children(
        self, value: Any, paths: Rests, kept: frozenset[str] | tuple[()] = (), depth: int = 0
    ) -> Any:
        """Return *value* with what is in it concealed, but for the names *kept*."""
        if not paths:
            return value
        every = is_named(paths)
        if isinstance(value, Mapping):
            made = {
                name: one
                if name in kept
                else self.value(one, ALL if every else after(paths, name), depth + 1)
                for name, one in value.items()
            }
            return made if any(made[name] is not one for name, one in value.items()) else value
        if isinstance(value, list | tuple):
            items = [
                self.value(one, ALL if every else after(paths, at), depth + 1)
                for at, one in enumerate(value)
            ]
            same = all(one is two for one, two in zip(items, value, strict=True))
            if same:
                return value
            return tuple(items) if isinstance(value, tuple) else items
        return self.value(value, ALL) if every else value

    def _hidden(self, value: Any) -> Any:
        if value is None or (isinstance(value, str | bytes | Mapping | list | tuple) and not value):
            return value
        if isinstance(value, str) and value == MARK:
            return value
        self.count += 1
        self.removed.extend(_leaves(value))
        return MARK


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what is in *value*, names too, at whatever depth; a container within itself once."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping | list | tuple):
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            waiting.extend(one)
            if isinstance(one, Mapping):
                waiting.extend(one.values())


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
    for text in (text for value in values for text in _texts_of(value)):
        if text in texts:
            continue
        texts.add(text)
        fresh = _spellings(text) - words
        words |= fresh
        characters += sum(map(len, fresh))
        if len(words) > MOST_WORDS or characters > MOST_CHARACTERS:
            return None
    return Words(words)


def _texts_of(value: object) -> Iterator[str]:
    """Yield the texts of *value* that are long enough to be known again."""
    if isinstance(value, bytes):
        yield from _texts_of(value.decode("utf-8", "replace"))
        value = repr(b'"' + value)[3:-1]
    if isinstance(value, str):
        yield from (text for text in _lines_of(value) if len(text) >= SHORTEST_WORD)
    elif not isinstance(value, bool):
        written = _written(value)
        if sum(map(str.isdigit, written)) >= FEWEST_DIGITS:
            yield written.removeprefix("-")


def _lines_of(text: str) -> Iterator[str]:
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


def _unquoted(write: Callable[[str], str]) -> Callable[[str], str]:
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
    _unquoted(repr),
    _beside(repr),
    _unquoted(ascii),
    _beside(ascii),
    _unquoted(json.dumps),
    _unquoted(partial(json.dumps, ensure_ascii=False)),
)
