"""Concealing: put a mark in place of the values of a tree that paths name. Pure.

Path patterns: which values of a tree a setting names, such as ``**.password``.

Steps are divided by dots: a name (case does not matter) or the index of a list item, ``*`` for any
one step, ``**`` for any number of steps, none included.

Spelling: how a value that was taken out of a payload may stand in a text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from angzarr.dead_letters.masking import MARK

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
