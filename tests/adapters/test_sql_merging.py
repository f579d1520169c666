"""Commands against event books: each strategy, and writers that really are at once (C1 to C3)."""

from __future__ import annotations

import pytest
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.merging import MergingContract, SharedMergingContract

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.adapters.sql.event_store.books import SqlEventBooks


class TestInMemory(MergingContract):
    @pytest.fixture
    def books(self):
        return MemoryEventBooks()


class SqlMergingContract(SharedMergingContract):
    @pytest.fixture
    def books(self, engine):
        return SqlEventBooks(engine)


class TestOnSqlite(OnSqlite, SqlMergingContract):
    pass


class TestOnPostgresql(OnPostgresql, SqlMergingContract):
    pass
