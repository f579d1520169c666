from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from angzarr.adapters.kafka.fetched_messages import (
    FetchedAhead,
    KafkaHandle,
    PartitionProgress,
    meanwhile,
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


def read(message: Message) -> Receipt:
    handle = KafkaHandle(*message.place, message.offset, PartitionProgress())
    return Receipt(domain="d", letter=None, raw=message.value(), content_type="", handle=handle)


def messages(topic: str, partition: int, *offsets: int) -> list[Any]:
    return [Message((topic, partition), offset) for offset in offsets]


def places(receipts: list[Receipt]) -> Iterator[tuple[str, int, int]]:
    return (receipt.handle[:3] for receipt in receipts)


def test_it_gives_letters_of_the_wanted_topics_in_order_and_keeps_the_others():
    ahead = FetchedAhead(read)
    ahead.add([*messages("a", 0, 1, 2), *messages("b", 0, 1), *messages("a", 0, 3)])
    assert ahead.unread
    assert list(places(ahead.take(Room(2), {"a"}))) == [("a", 0, 1), ("a", 0, 2)]
    assert (ahead.unread, len(ahead), ahead.count("a"), ahead.count("b")) == (False, 2, 1, 1)
    assert list(places(ahead.take(Room(9), {"a", "b"}))) == [("b", 0, 1), ("a", 0, 3)]
    assert ahead.take(Room(9), {"a"}) == []


def test_its_bytes_are_known_read_or_not_and_bound_what_it_gives():
    ahead = FetchedAhead(read)
    ahead.add(messages("a", 0, 10, 20, 30))
    assert ahead.bytes == 60
    assert list(places(ahead.take(Room(9, bytes=11), {"a"}))) == [("a", 0, 10), ("a", 0, 20)]
    assert ahead.bytes == 30


def test_a_place_that_is_taken_away_is_forgotten_read_or_not():
    ahead = FetchedAhead(read)
    ahead.add([*messages("a", 0, 1), *messages("a", 1, 1)])
    ahead.read()
    ahead.add([*messages("a", 0, 2), *messages("a", 1, 2)])
    ahead.drop({("a", 0)})
    assert list(places(ahead.take(Room(9), {"a"}))) == [("a", 1, 1), ("a", 1, 2)]


def test_what_is_interrupted_passes_over_nothing():
    interrupted = [KeyboardInterrupt]

    def interrupted_once(message: Message) -> Receipt:
        if message.offset == 2 and interrupted:
            raise interrupted.pop()
        return read(message)

    ahead = FetchedAhead(interrupted_once)
    ahead.add(messages("a", 0, 1, 2, 3))
    with pytest.raises(KeyboardInterrupt):
        ahead.read()
    assert [offset for *_, offset in places(ahead.take(Room(9), {"a"}))] == [1, 2, 3]


def test_work_is_done_while_the_answer_is_waited_for():
    worked = threading.Event()
    assert meanwhile(lambda: worked.wait(60), worked.set) is True


def test_what_asking_raises_is_raised_after_the_work():
    done: list[int] = []

    def refuse() -> None:
        raise OSError

    with pytest.raises(OSError):
        meanwhile(refuse, lambda: done.append(1))
    assert done == [1]


def test_what_the_work_raises_is_raised_after_the_answer():
    going, answered = threading.Event(), threading.Event()

    def ask():
        assert going.wait(60)
        threading.Event().wait(0.1)  # as a broker takes its time
        answered.set()

    def work():
        going.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        meanwhile(ask, work)
    assert answered.is_set(), "nobody uses the client beside it"


def test_without_another_thread_it_is_asked_all_the_same(monkeypatch):
    def no_more(_thread: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", no_more)
    assert meanwhile(lambda: 1, lambda: None) == 1
