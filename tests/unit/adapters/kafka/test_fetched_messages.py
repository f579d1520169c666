from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.kafka.fetched_messages import (
    FetchedAhead,
    FetchedMessage,
    KafkaHandle,
    PartitionProgress,
)
from angzarr.dead_letters.queue import Receipt, Room


class Message(NamedTuple):
    place: tuple[str, int]
    offset: int

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def value(self) -> bytes:
        return bytes(self.offset)


def read(fetched: FetchedMessage) -> Receipt:
    raw, handle = fetched.message.value(), fetched.handle
    return Receipt(domain="d", letter=None, raw=raw, content_type="", handle=handle)


def messages(topic: str, partition: int, *offsets: int) -> list[FetchedMessage]:
    progress = PartitionProgress()
    return [
        FetchedMessage(
            Message((topic, partition), offset), KafkaHandle(topic, partition, offset, progress)
        )
        for offset in offsets
    ]


def places(receipts: list[Receipt]) -> Iterator[tuple[str, int, int]]:
    return (receipt.handle[:3] for receipt in receipts)


def test_it_gives_letters_of_the_wanted_topics_in_order_and_keeps_the_others():
    ahead = FetchedAhead(read)
    ahead.add([*messages("a", 0, 1, 2), *messages("b", 0, 1), *messages("a", 0, 3)])
    assert (len(ahead), ahead.count("a"), ahead.count("b")) == (4, 3, 1)
    assert list(places(ahead.take(Room(2), {"a"}))) == [("a", 0, 1), ("a", 0, 2)]
    assert (len(ahead), ahead.count("a"), ahead.count("b")) == (2, 1, 1)
    assert list(places(ahead.take(Room(9), {"a", "b"}))) == [("b", 0, 1), ("a", 0, 3)]
    assert ahead.take(Room(9), {"a"}) == []


def test_its_bytes_are_known_read_or_not_and_bound_what_it_gives():
    ahead = FetchedAhead(read)
    ahead.add(messages("a", 0, 10, 20, 30))
    assert ahead.bytes == 60
    assert list(places(ahead.take(Room(9, bytes=11), {"a"}))) == [("a", 0, 10), ("a", 0, 20)]
    assert ahead.bytes == 30


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), max_size=6),
    st.integers(0, 8),
    st.integers(0, 40),
    st.sampled_from([{"a"}, {"a", "b"}, {"b", "c"}]),
)
def test_all_at_once_or_one_by_one_it_gives_the_same(letters, most, size, topics):
    ahead, room = FetchedAhead(read), Room(most, bytes=size)
    ahead.add([one for topic, offset in letters for one in messages(topic, 0, offset)])
    wanted, kept, left = [], [], Room(most, bytes=size)
    for topic, offset in letters:
        fits = bool(left) and topic in topics
        (wanted if fits else kept).append((topic, 0, offset))
        if fits:
            left.take(offset)
    assert (list(places(ahead.take(room, topics))), room) == (wanted, left)
    assert list(places(ahead.take(Room(9, bytes=99), {"a", "b"}))) == kept


def test_a_place_that_is_taken_away_is_forgotten_read_or_not():
    ahead = FetchedAhead(read)
    ahead.add([*messages("a", 0, 1), *messages("a", 1, 1)])
    ahead.read()
    ahead.add([*messages("a", 0, 2), *messages("a", 1, 2)])
    ahead.drop({("a", 0)})
    assert list(places(ahead.take(Room(9), {"a"}))) == [("a", 1, 1), ("a", 1, 2)]


def test_what_is_interrupted_passes_over_nothing():
    interrupted = [KeyboardInterrupt]

    def interrupted_once(fetched: FetchedMessage) -> Receipt:
        if fetched.handle.offset == 2 and interrupted:
            raise interrupted.pop()
        return read(fetched)

    ahead = FetchedAhead(interrupted_once)
    ahead.add(messages("a", 0, 1, 2, 3))
    with pytest.raises(KeyboardInterrupt):
        ahead.read()
    assert [offset for *_, offset in places(ahead.take(Room(9), {"a"}))] == [1, 2, 3]


def test_they_are_read_in_a_thread_beside_and_come_in_order():
    readers, first = set[str](), threading.Event()

    def told(fetched: FetchedMessage) -> Receipt:
        readers.add(threading.current_thread().name)
        first.set()
        return read(fetched)

    ahead = FetchedAhead(told)
    ahead.add(messages("a", 0, *range(1, 9)))
    ahead.begin()
    assert first.wait(60)
    assert [offset for *_, offset in places(ahead.take(Room(9), {"a"}))] == list(range(1, 9))
    assert "angzarr-kafka-read" in readers


def test_what_is_taken_away_while_it_is_read_does_not_come_back():
    reading = threading.Event()

    def slow(fetched: FetchedMessage) -> Receipt:
        reading.set()
        return read(fetched)

    ahead = FetchedAhead(slow)
    ahead.add([*messages("a", 0, *range(1, 200)), *messages("a", 1, 1)])
    ahead.begin()
    assert reading.wait(60)
    ahead.drop({("a", 0)})
    assert list(places(ahead.take(Room(300), {"a"}))) == [("a", 1, 1)]


def test_what_fails_in_the_thread_is_raised_where_it_is_taken():
    def fail(_fetched: FetchedMessage) -> Receipt:
        raise OSError

    ahead = FetchedAhead(fail)
    ahead.add(messages("a", 0, 1))
    ahead.begin()
    with pytest.raises(OSError):
        ahead.take(Room(9), {"a"})
    assert len(ahead) == 1


def test_without_another_thread_they_are_read_when_they_are_taken(monkeypatch):
    def no_more(_thread: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", no_more)
    ahead = FetchedAhead(read)
    ahead.add(messages("a", 0, 1, 2))
    ahead.begin()
    assert len(ahead.take(Room(9), {"a"})) == 2
