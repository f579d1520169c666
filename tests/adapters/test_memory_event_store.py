from __future__ import annotations

import pytest
from tests.contracts.event_store import EventStoreContract

from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryEventStore


class TestMemoryEventStore(EventStoreContract):
    @pytest.fixture
    def books(self):
        return MemoryEventBooks()

    @pytest.fixture
    def store(self, books):
        return MemoryEventStore(books)
