"""Ahead: messages fetched beyond what was asked for, and letters read of them beforehand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from angzarr.dead_letters.queue import Receipt, Room


class Ahead:
    """What comes next, in order; *read* makes a receipt of a message."""

    def __init__(self, read: Callable[[Any], Receipt]) -> None:
        self._read = read
        self._messages: deque[Any] = deque()
        self._letters: list[Receipt] = []

    def __len__(self) -> int:
        return len(self._messages) + len(self._letters)

    @property
    def unread(self) -> bool:
        """Whether there is something to read."""
        return bool(self._messages)

    def add(self, messages: Sequence[Any]) -> None:
        """Keep *messages*, to be read later."""
        self._messages += messages

    def read(self) -> None:
        """Read what was not read yet; where that is interrupted, none is passed over."""
        while self._messages:
            self._letters.append(self._read(self._messages[0]))
            self._messages.popleft()

    @property
    def bytes(self) -> int:
        """How many bytes of messages and letters are here."""
        unread = sum(len(one.value() or b"") for one in self._messages)
        return unread + sum(len(one.raw) for one in self._letters)

    def take(self, room: Room, topics: Collection[str]) -> list[Receipt]:
        """Give letters of *topics* while there is *room*; others may be asked for later."""
        self.read()
        wanted: list[Receipt] = []
        kept: list[Receipt] = []
        for one in self._letters:
            fits = bool(room) and one.handle.topic in topics
            if fits:
                room.take(len(one.raw))
            (wanted if fits else kept).append(one)
        self._letters = kept
        return wanted

    def count(self, topic: str) -> int:
        """Return how many letters of *topic* were read."""
        return sum(one.handle.topic == topic for one in self._letters)

    def drop(self, places: Collection[tuple[str, int]]) -> None:
        """Forget what comes from *places*: topics with a partition."""
        messages = [m for m in self._messages if (m.topic(), m.partition()) not in places]
        self._messages = deque(messages)
        self._letters = [one for one in self._letters if one.handle[:2] not in places]

    def clear(self) -> None:
        """Forget everything."""
        self._messages.clear()
        self._letters.clear()
