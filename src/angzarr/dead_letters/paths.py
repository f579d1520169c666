"""Path patterns: which values of a tree a setting names, such as ``**.password``.

Steps are divided by dots: a name (case does not matter) or the index of a list item, ``*`` for any
one step, ``**`` for any number of steps, none included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

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
