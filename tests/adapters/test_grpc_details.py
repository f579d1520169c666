from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest
from tests.adapters.grpc_hands import (
    Connecting,
    book_of_size,
    decider,
    failing,
    increment,
)
from tests.adapters.grpc_site import (
    CommandSite,
    status,
)

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.wire_form import book_to_wire
from angzarr.errors import DecodeError, SequenceConflictError


class Lying(CommandSite):
    """Answers every call with the same bytes."""

    answer = b""

    def _book(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        return self.answer

    def _execute(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        return self.answer


class TestDetails(Connecting):
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"\xff" * 40,
            b"\x08\x09",
            b"not a message at all",
            bytes(range(256)) * 40,
        ],
    )
    def test_a_conflict_with_garbage_has_no_book(self, hands, site, address, raw):
        site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
        with pytest.raises(SequenceConflictError, match=r"^as asked$") as raised:
            hands.execute(increment(address, 0))
        assert raised.value.book is None

    def test_a_conflict_with_the_book_of_another_has_no_book(self, hands, site, address):
        stranger = Book(address=address._replace(root="c-2"), next_sequence=0)
        raw = status(grpc.StatusCode.FAILED_PRECONDITION, book_to_wire(stranger))
        site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
        with pytest.raises(SequenceConflictError) as raised:
            hands.execute(increment(address, 0))
        assert raised.value.book is None

    def test_a_conflict_brings_a_book_far_beyond_what_grpc_takes_by_default(
        self, hands, site, address
    ):
        large = book_to_wire(book_of_size(address, 900_000))
        raw = status(grpc.StatusCode.FAILED_PRECONDITION, large)
        site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
        with pytest.raises(SequenceConflictError) as raised:
            hands.execute(increment(address, 0))
        assert len(raised.value.book.events[0].data) == 900_000

    def test_details_beyond_the_bound_end_in_an_error_of_grpc(self, hands, site, address):
        huge = book_to_wire(book_of_size(address, 3_000_000))
        raw = status(grpc.StatusCode.FAILED_PRECONDITION, huge)
        site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
        with pytest.raises(grpc.RpcError) as raised:
            hands.execute(increment(address, 0))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        site.before = lambda command, context: None
        hands.execute(increment(address, 0))  # the channel serves as before


class TestAnswers(Connecting):
    @pytest.fixture
    def lying(self) -> Iterator[Lying]:
        with Lying(decider(MemoryEventBooks(), [])) as site:
            yield site

    @pytest.mark.parametrize(
        "other", [("counter", "c-2", ""), ("player", "c-1", ""), ("counter", "c-1", "what if")]
    )
    def test_an_answer_of_another_aggregate_is_refused(self, connect, lying, address, other):
        hands = connect(lying.url)
        lying.answer = book_to_wire(Book(address=Address(*other))).SerializeToString()
        with pytest.raises(DecodeError, match="asked for counter/c-1, the answer is of"):
            hands.execute(increment(address))
        with pytest.raises(DecodeError, match="asked for counter/c-1, the answer is of"):
            hands.book(address)

    @pytest.mark.parametrize("raw", [b"", b"\xff\xff", b"\x0a\x05"])
    def test_an_answer_that_is_no_book_is_refused(self, connect, lying, address, raw):
        hands = connect(lying.url)
        lying.answer = raw
        with pytest.raises(DecodeError):
            hands.execute(increment(address))
        with pytest.raises(DecodeError):
            hands.book(address)

    def test_a_book_with_holes_is_refused(self, connect, lying, address):
        hands = connect(lying.url)
        lying.answer = book_to_wire(
            replace(book_of_size(address, 1), next_sequence=2)
        ).SerializeToString()
        with pytest.raises(DecodeError, match="holes"):
            hands.book(address)

    def test_an_answer_beyond_the_bound_ends_in_an_error_of_grpc(self, connect, lying, address):
        hands = connect(lying.url, max_message=1_000)
        lying.answer = book_to_wire(book_of_size(address, 2_000)).SerializeToString()
        with pytest.raises(grpc.RpcError) as raised:
            hands.book(address)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
