"""What PostgreSQL has no room for is refused: it would not fit later, however long one waits."""

from __future__ import annotations

import random

import pytest
from sqlalchemy.exc import DBAPIError
from tests.contracts.books import deciding, event
from tests.hand_clock import START

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.aggregates.book import Address, Write
from angzarr.resilience.taxonomy import classify, retryable


@pytest.fixture
def books(postgresql_url):
    engine = build_engine(postgresql_url)
    yield SqlEventBooks(engine)
    engine.dispose()


def test_a_key_that_no_index_takes_is_no_absence_of_the_database(books):
    address = Address("player", random.Random(7).randbytes(20_000).hex())
    with pytest.raises(DBAPIError) as caught:
        books.write(Write(address=address, decision=deciding(event())))
    assert not retryable(classify(caught.value, now=START).category)
    assert books.read(address).book.next_sequence == 0
