"""Parts of the world: the ledger's tables, a queue of letters, and ports that act up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from angzarr.analysis.ledger.payload_upkeep import ReleasedHold
from angzarr.dead_letters.holding_queue import payload_hold
from angzarr.dead_letters.letter import DeadLetter
from payload_model.crashes import Crash

if TYPE_CHECKING:
    from payload_model.world import World


@dataclass(slots=True)
class Entry:
    """A row of the ledger: the letter of one event, and whether it is closed.

    `before` is the letter before the newest edit, if there is one; `filed` are the ids of all
    letters that were filed in it.
    """

    letter: DeadLetter
    closed: bool = False
    before: DeadLetter | None = None
    filed: set[str] = field(default_factory=set)

    @property
    def letters(self) -> list[DeadLetter]:
        """Those whose data a person may ask for."""
        return [self.letter] if self.before is None else [self.letter, self.before]


@dataclass(slots=True)
class Ledger:
    """The ledger's tables: each method is one transaction."""

    entries: dict[str, Entry] = field(default_factory=dict)
    released: list[ReleasedHold] = field(default_factory=list)
    numbers: int = 0

    def file(self, letter: DeadLetter) -> None:
        """File *letter*, in place of an earlier one of its event."""
        event = letter.message.id or ""
        entry = self.entries.get(event)
        if entry is None:
            self.entries[event] = Entry(letter, filed={letter.id})
        elif letter.id in entry.filed or letter.replay < entry.letter.replay:
            self._release(letter, entry)
        else:
            passed, entry.letter, entry.closed = entry.letter, letter, False
            self._release(passed, entry)
        self.entries[event].filed.add(letter.id)
        hold = payload_hold(letter)
        self.released = [
            one for one in self.released if one.hold != hold or letter not in self.letters(event)
        ]

    def begin(self, event: str, *, edited: bool) -> int:
        """Begin a replay of an entry, perhaps with other data; return its number."""
        entry = self.entries[event]
        if edited:
            passed, entry.before = entry.before, entry.letter
            if passed is not None:
                self._release(passed, entry)
        return entry.letter.replay + 1

    def end(self, event: str) -> None:
        """Note that *event* was handled; it may have no entry."""
        if event in self.entries:
            self.entries[event].closed = True

    def remove(self, events: Sequence[str], chance: random.Random) -> None:
        """Remove one of the entries of *events*, which are closed."""
        self._remove(chance.choice(events))

    def clear(self) -> None:
        """Remove all entries."""
        for event in list(self.entries):
            self._remove(event)

    def _remove(self, event: str) -> None:
        for letter in self.entries.pop(event).letters:
            self._release(letter)

    def letters(self, event: str) -> list[DeadLetter]:
        """The letters of an entry; none, if there is none."""
        return self.entries[event].letters if event in self.entries else []

    def _release(self, letter: DeadLetter, entry: Entry | None = None) -> None:
        """Note that the hold of *letter* is to end, unless *entry* has the same."""
        hold = payload_hold(letter)
        held = {payload_hold(one) for one in entry.letters} if entry else set()
        if hold is not None and hold not in held:
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

    def __init__(self, inner: Any, chance: random.Random) -> None:
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
