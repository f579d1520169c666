from __future__ import annotations

import pytest
from tests.contracts.fact_reader import FactReaderContract

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog


class TestMemoryFactReader(FactReaderContract):
    @pytest.fixture
    def book(self):
        return MemoryFactLog()

    @pytest.fixture
    def reader(self, book):
        return MemoryFactReader(book)
