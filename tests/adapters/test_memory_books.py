from __future__ import annotations

import pytest
from tests.contracts.books import EventBooksContract

from angzarr.adapters.memory.event_store import MemoryEventBooks


class TestMemoryEventBooks(EventBooksContract):
    @pytest.fixture
    def books(self):
        return MemoryEventBooks()
