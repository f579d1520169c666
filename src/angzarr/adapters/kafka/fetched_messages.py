"""The messages that a consumer has fetched: decoded ahead, and their progress per partition."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from angzarr.dead_letters.queue import Receipt, Room
from angzarr.dead_letters.record import ForeignRecord


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


class FetchedMessage(NamedTuple):
    """A message of confluent-kafka and its place."""

    message: Any
    handle: KafkaHandle


class FetchedAhead:
    """The next messages, in order; *read* makes a receipt of one, in any thread.

    `begin` has them read in a thread beside, while the ledger and Kafka are waited for. Safe to
    use while that goes on.
    """

    def __init__(self, read: Callable[[FetchedMessage], Receipt]) -> None:
        self._read = read
        #: Held while one is read: none is seen in both places, or in neither.
        self._lock = threading.Lock()
        self._messages: deque[FetchedMessage] = deque()
        self._letters: list[Receipt] = []

    def __len__(self) -> int:
        with self._lock:
            return len(self._messages) + len(self._letters)

    def add(self, messages: Iterable[FetchedMessage]) -> None:
        """Keep *messages*, to be read later."""
        with self._lock:
            self._messages += messages

    def begin(self) -> None:
        """Read them in a thread beside; what that does not come to is read when it is taken."""

        def read() -> None:
            with contextlib.suppress(Exception):  # raised where it is taken
                self.read()

        with contextlib.suppress(RuntimeError):  # no more threads
            threading.Thread(target=read, name="angzarr-kafka-read", daemon=True).start()

    def read(self) -> None:
        """Read what was not read yet; where that is interrupted, none is passed over."""
        while self._read_next():
            pass

    def _read_next(self) -> bool:
        with self._lock:
            if self._messages:
                self._letters.append(self._read(self._messages[0]))
                self._messages.popleft()
            return bool(self._messages)

    @property
    def bytes(self) -> int:
        """How many bytes of messages and letters are here."""
        with self._lock:
            unread = sum(len(one.message.value() or b"") for one in self._messages)
            return unread + sum(len(one.raw) for one in self._letters)

    def take(self, room: Room, topics: Collection[str]) -> list[Receipt]:
        """Give letters of *topics* while there is *room*; others may be asked for later."""
        self.read()
        size = sum([len(one.raw) for one in self._letters])
        others = {one.handle.topic for one in self._letters} - set(topics)
        if len(self._letters) <= room.letters and size <= room.bytes and not others:
            room.take(size, len(self._letters))
            all_of_them, self._letters = self._letters, []
            return all_of_them
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
        """The number of letters of *topic* that are here, read or not."""
        with self._lock:
            topics = [one.handle.topic for one in self._messages]
            topics += [one.handle.topic for one in self._letters]
        return topics.count(topic)

    def drop(self, places: Collection[tuple[str, int]]) -> None:
        """Forget what comes from *places*: topics with a partition."""
        with self._lock:
            messages = [one for one in self._messages if one.handle[:2] not in places]
            self._messages = deque(messages)
            self._letters = [one for one in self._letters if one.handle[:2] not in places]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._messages.clear()
            self._letters.clear()


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
