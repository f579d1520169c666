from __future__ import annotations

import pytest
from tests.contracts.books import EventBooksContract
from tests.contracts.event_store import EventStoreContract
from tests.contracts.rejections import RejectionLogContract

from angzarr.adapters.memory.event_store import (
    MemoryEventBooks,
    MemoryEventStore,
    MemoryRejectionLog,
)


class OnMemory:
    @pytest.fixture
    def books(self):
        return MemoryEventBooks()


class TestMemoryEventBooks(OnMemory, EventBooksContract):
    pass


class TestMemoryEventStore(OnMemory, EventStoreContract):
    @pytest.fixture
    def store(self, books):
        return MemoryEventStore(books)


class TestMemoryRejectionLog(RejectionLogContract):
    @pytest.fixture
    def log(self):
        return MemoryRejectionLog()
