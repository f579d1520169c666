"""The messages that a consumer has fetched: decoded ahead, and their progress per partition."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from angzarr.dead_letters.queue import Receipt, Room
from angzarr.dead_letters.record import ForeignRecord


class FetchedAhead:
    """The next messages, in order; *read* makes a receipt of a message."""

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
        """The number of letters of *topic* that were read."""
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


_Answer = TypeVar("_Answer")


def meanwhile(ask: Callable[[], _Answer], work: Callable[[], None]) -> _Answer:
    """The result of *ask*, or its error; *work* is done while it waits.

    It begins first: a new thread keeps the interpreter until it waits. If *work* fails, that is
    raised once the answer is there: no other code may use the client beside *ask*.
    """
    answer: Future[_Answer] = Future()

    def asked() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  raised where it is awaited
            answer.set_exception(error)

    try:
        threading.Thread(target=asked, name="angzarr-kafka-commit", daemon=True).start()
    except RuntimeError:  # no more threads
        return ask()
    try:
        work()
    finally:
        wait([answer])
    return answer.result()


class PartitionProgress:
    """How far one partition is done, while it is ours. Offsets are taken in ascending order."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._last = -1
        self.committed = -1

    def take(self, offset: int) -> None:
        """Note a letter handed out."""
        self._open[offset] = None
        self._last = offset

    def done(self, offset: int) -> None:
        """Note a letter let go."""
        self._open.pop(offset, None)

    @property
    def taken(self) -> int:
        """The offset before which everything was handed out."""
        return self._last + 1

    @property
    def position(self) -> int:
        """The offset before which everything is done."""
        return next(iter(self._open), self.taken)


class KafkaHandle(NamedTuple):
    """A letter's place, and the progress of the assignment that it came by."""

    topic: str
    partition: int
    offset: int
    progress: PartitionProgress


def record_of(message: Any, headers: Sequence[tuple[str, bytes | None]]) -> ForeignRecord:
    """Key, place and time of *message*, with its *headers*; a tombstone has no value."""
    kind, at = message.timestamp()
    properties: dict[str, Any] = {} if kind == TIMESTAMP_NOT_AVAILABLE else {"timestamp": at}
    if message.value() is None:
        properties["tombstone"] = True
    return ForeignRecord(
        broker="kafka",
        place={
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
        },
        is_unique=True,
        key=message.key(),
        headers=tuple(headers),
        properties=properties,
    )
