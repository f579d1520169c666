"""Crashes: a process may be killed at any call of a port, before or after its effect."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The process was killed here."""


class Killer:
    """Kills in one of *rate* calls while `armed`, as *chance* says; counts its kills."""

    def __init__(self, chance: random.Random, rate: float) -> None:
        self.chance = chance
        self.rate = rate
        self.kills = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """*call*, before or after which it may kill."""

        def called(*args: Any, **options: Any) -> Any:
            self._may_kill()
            found = call(*args, **options)
            self._may_kill()
            return found

        return called

    def _may_kill(self) -> None:
        if self.rate and self.chance.random() < self.rate:
            self.kills += 1
            raise Crash


class Killing:
    """Any port, *inner*, whose verbs *killer* is around."""

    def __init__(self, inner: Any, killer: Killer) -> None:
        self._inner = inner
        self._killer = killer

    def __str__(self) -> str:
        return str(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._killer.around(found) if callable(found) else found
