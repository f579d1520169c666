from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest

from angzarr.adapters.memory.dead_letters import (
    DiscardedDeadLetterQueue,
    MemoryDeadLetterQueue,
    channel,
)
from angzarr.dead_letters.codec import Encoded
from angzarr.dead_letters.names import queue_name
from contracts.dead_letters import (
    CountedLettersContract,
    RawLettersContract,
    a_letter,
)


class TestMemoryDeadLetterQueue(RawLettersContract, CountedLettersContract):
    @pytest.fixture(autouse=True)
    def backend(self) -> None:
        self.name = uuid.uuid4().hex

    def open(self) -> MemoryDeadLetterQueue:
        return MemoryDeadLetterQueue(self.name)

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        shared = channel(self.name)
        with shared.changed:
            shared.queue(queue_name(domain)).append(Encoded(raw, content_type or ""))
            shared.changed.notify_all()

    def test_a_waiting_receiver_is_woken_by_a_put(self, domain: str) -> None:
        taken = []
        receiver = threading.Thread(
            target=lambda: taken.extend(
                self.open().receive([domain], limit=1, wait=timedelta(seconds=30))
            )
        )
        receiver.start()
        self.open().put([a_letter(domain)])
        receiver.join(60)
        assert len(taken) == 1

    def test_channels_of_other_names_are_apart(self, domain: str) -> None:
        self.open().put([a_letter(domain)])
        other = MemoryDeadLetterQueue(f"{self.name}-other")
        assert other.receive([domain], limit=1, wait=timedelta(0)) == []


def test_discarded_letters_are_logged_and_never_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = DiscardedDeadLetterQueue()
    assert queue.put([a_letter("order")]) == [None]
    assert "dead_letter_discarded: order-0 of shop.sync" in caplog.text
    assert queue.receive(["order"], limit=1, wait=timedelta(0)) == []
    queue.done([])
    queue.close()
