"""Concealing: put a mark in place of the values of a tree that paths name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from angzarr.dead_letters.masking import MARK
from angzarr.dead_letters.paths import ALL, Rests, after, is_named

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
