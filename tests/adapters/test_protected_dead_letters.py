"""A queue that protects what is put into it is a dead-letter queue like any other."""

from __future__ import annotations

import uuid

import pytest

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue, channel
from angzarr.dead_letters.codec import Encoded
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.protection import ProtectedQueue, Protection
from angzarr.dead_letters.redaction import Redaction
from contracts.dead_letters import DeadLetterQueueContract, RawLettersContract


class TestProtectedQueue(RawLettersContract, DeadLetterQueueContract):
    """The suite compares letters field by field: nothing in them is named here."""

    @pytest.fixture(autouse=True)
    def backend(self) -> None:
        self.name = uuid.uuid4().hex

    def open(self) -> ProtectedQueue:
        protection = Protection(redaction=Redaction.of(["**.password"], []))
        return ProtectedQueue(MemoryDeadLetterQueue(self.name), protection)

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        shared = channel(self.name)
        with shared.changed:
            shared.queue(queue_name(domain)).append(Encoded(raw, content_type or ""))
            shared.changed.notify_all()
