"""Parts of the world: the ledger's tables, a queue of letters, and ports that act up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from angzarr.analysis.ledger.payload_upkeep import ReleasedHold
from angzarr.dead_letters.holding_queue import payload_hold
from angzarr.dead_letters.letter import DeadLetter
from memory_payloads import MemoryPayloadStore
from payload_model.crashes import Crash

if TYPE_CHECKING:
    from payload_model.world import World


@dataclass(slots=True)
class Entry:
    """A row of the ledger: the letter of one event, and whether it is closed."""

    letter: DeadLetter
    closed: bool = False


@dataclass(slots=True)
class Ledger:
    """The ledger's tables: each method is one transaction."""

    entries: dict[str, Entry] = field(default_factory=dict)
    released: list[ReleasedHold] = field(default_factory=list)
    numbers: int = 0

    def file(self, letter: DeadLetter) -> None:
        """File *letter*, in place of an earlier one of its event."""
        event = letter.message.id or ""
        before = self.entries.get(event)
        if before is None:
            self.entries[event] = Entry(letter)
            return
        old, new = sorted((before.letter, letter), key=lambda one: one.replay)
        if payload_hold(old) != payload_hold(new):
            self._release(old)
        if new is letter:
            self.entries[event] = Entry(letter)

    def remove(self, event: str) -> None:
        """Remove the entry of *event*."""
        self._release(self.entries.pop(event).letter)

    def _release(self, letter: DeadLetter) -> None:
        hold = payload_hold(letter)
        if hold is not None:
            self.numbers += 1
            self.released.append(ReleasedHold(self.numbers, hold))

    def read(self, limit: int) -> list[ReleasedHold]:
        return self.released[:limit]

    def forget(self, numbers: Any) -> None:
        self.released = [one for one in self.released if one.number not in set(numbers)]

    def close(self) -> None:
        pass


class Letters:
    """A queue of letters."""

    def __init__(self) -> None:
        self.waiting: list[DeadLetter] = []

    def put(self, letters: Any) -> list[str | None]:
        self.waiting.extend(letters)
        return [None] * len(letters)

    def close(self) -> None:
        pass


class LateDeletions:
    """A payload store whose deletions may be carried out much later, as from a stopped process."""

    def __init__(self, inner: MemoryPayloadStore, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self.late: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def delete(self, uri: str) -> None:
        if self._chance.random() < 0.2:
            self.late.append(uri)
            raise Crash  # it is stopped before its deletion; another run does the same meanwhile
        self._inner.delete(uri)

    def catch_up(self) -> None:
        """Let the processes that were stopped go on."""
        for uri in self.late:
            self._inner.delete(uri)
        self.late.clear()


class Beside:
    """A port, *inner*, of a process; others of *world* act behind each of its calls."""

    def __init__(self, inner: Any, world: World) -> None:
        self._inner = inner
        self._world = world

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def called(*args: Any, **options: Any) -> Any:
            found = call(*args, **options)
            self._world.act_beside()
            return found

        return called


class Nothing:
    """Parts that no body depends on."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return lambda *_args, **_options: ()
