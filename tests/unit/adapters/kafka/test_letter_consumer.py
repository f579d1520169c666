"""A consumer of letters, of whom a partition is taken while it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

from angzarr.adapters.kafka import letter_consumer
from angzarr.adapters.kafka.letter_consumer import LetterConsumer
from angzarr.dead_letters.names import queue_name

TOPIC = queue_name("order")
PART = 50


class Message(NamedTuple):
    at: int

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return b"{}"

    def key(self) -> None:
        return None

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, 0

    def error(self) -> None:
        return None


class Revoked:
    """A consumer that gives one letter, a whole part, and then serves a rebalance."""

    def __init__(self, _settings: Any) -> None:
        self._parts = [[Message(0)], [Message(at) for at in range(1, PART + 1)], None]
        self.committed: list[TopicPartition] = []

    def subscribe(self, _topics: Any, *, on_revoke: Any, on_lost: Any) -> None:
        self._on_revoke = on_revoke

    def consume(self, _asked: int, timeout: float) -> list[Message]:
        part = self._parts.pop(0) if self._parts else []
        if part is None:
            self._on_revoke(self, [TopicPartition(TOPIC, 0)])
        return part or []

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.committed += offsets
        return offsets


def test_what_a_fetch_had_of_a_partition_that_it_lost_meanwhile_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(letter_consumer, "Consumer", Revoked)
    cluster: Any = SimpleNamespace(settings=lambda **_: {})
    letters = LetterConsumer(cluster, "group")
    taken = letters.receive(["order"], 4 * PART, 0.1)
    assert [one.handle.offset for one in taken] == [0], "the rest is somebody else's"
    letters.done(taken)
    held: Any = letters.held()
    assert held.committed == []
