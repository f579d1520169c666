"""Commands against event books: each strategy, and writers that really are at once (C1 to C3)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.merging import MergingContract, SharedMergingContract

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks

PATIENT = timedelta(seconds=30)


class TestInMemory(MergingContract):
    @pytest.fixture
    def books(self):
        return MemoryEventBooks()


class OnSql(SharedMergingContract):
    """Subclasses give the `url`."""

    @pytest.fixture
    def books(self, url):
        books = SqlEventBooks(build_engine(url, timeout=PATIENT))
        yield books
        books.close()


class TestOnSqlite(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'books.db'}"


class TestOnPostgresql(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url
