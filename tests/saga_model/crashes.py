"""Saboteur: lets the process die at random, before or after a step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The process was killed here."""


class Saboteur:
    """Draws where the process dies. `armed` only while a delivery is in hand."""

    def __init__(self, chance: random.Random, share: float) -> None:
        self.chance, self.share = chance, share
        self.armed = False
        self.crashes = 0
        self.places: dict[str, int] = {}

    def around(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return *step* as it is done by a process that may die before or after it."""

        def done(*args: Any, **kwargs: Any) -> Any:
            self._strike(f"before {name}")
            answer = step(*args, **kwargs)
            self._strike(f"after {name}")
            return answer

        return done

    def watch(self, thing: Any, what: str, *verbs: str) -> Any:
        """Return *thing* with its *verbs* sabotaged."""
        return _Watched(
            thing, {verb: self.around(f"{what}.{verb}", getattr(thing, verb)) for verb in verbs}
        )

    def _strike(self, place: str) -> None:
        if self.armed and self.chance.random() < self.share:
            self.armed = False  # a dead process does nothing more
            self.crashes += 1
            self.places[place] = self.places.get(place, 0) + 1
            raise Crash(place)


class _Watched:
    def __init__(self, thing: Any, verbs: dict[str, Callable[..., Any]]) -> None:
        self._thing = thing
        self.__dict__.update(verbs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._thing, name)
