"""What every client of aggregates must do. Adapters' tests subclass this on a real server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import Command, Intent, MergeStrategy
from angzarr.aggregates.decorators import applies, handles, merge_strategy
from angzarr.errors import (
    CommandAbortedError,
    CommandRejectedError,
    SequenceConflictError,
)
from angzarr.resilience.policies import POLICIES

#: Enough attempts for so many at once on a busy machine, and no long pauses.
PERSISTENT = replace(
    POLICIES["saga_command"], max_attempts=500, max_delay=timedelta(milliseconds=100)
)


class Increment(BaseModel):
    by: int = 1


class Spend(BaseModel):
    amount: int


class Audit(BaseModel):
    note: str = ""


class Incremented(BaseModel):
    by: int


class Count(BaseModel):
    total: int = 0


class Counter(Aggregate[Count]):
    domain = "counter"

    @handles(Increment)
    def increment(self, command: Increment) -> Incremented:
        return Incremented(by=command.by)

    @handles(Spend)
    @merge_strategy(MergeStrategy.STRICT)
    def spend(self, command: Spend) -> Incremented:
        if command.amount > self.state.total:
            msg = f"there are only {self.state.total} ✓"
            raise CommandRejectedError(msg)
        return Incremented(by=-command.amount)

    @handles(Audit)
    @merge_strategy(MergeStrategy.MANUAL)
    def audit(self, _command: Audit) -> None:
        """Nothing happens."""

    @applies(Incremented)
    def incremented(self, event: Incremented) -> None:
        self.state.total += event.by


@dataclass(frozen=True)
class Hands:
    """A client of either colour, called as if it were synchronous."""

    book: Callable[[Address], Book]
    execute: Callable[[Command], Decision]
    #: `execute_with_retry` by this client.
    retried: Callable[..., Decision]


class CommandClientContract:
    """Subclasses give `hands`, and `reviewed`: the list of what came up for review."""

    @pytest.fixture
    def hands(self) -> Hands:
        raise NotImplementedError

    @pytest.fixture
    def reviewed(self) -> list:
        return []

    @pytest.fixture
    def rival(self, hands) -> Callable[[Command], Decision]:
        """Somebody else, who executes commands while this client is waited for."""
        return hands.execute

    @pytest.fixture
    def address(self) -> Address:
        return Address("counter", str(uuid4()))

    @pytest.fixture
    def command(self, address):
        def command(payload, expected=None, **fields) -> Command:
            return Intent(address=address, **fields).command(payload, expected)

        return command

    def test_the_book_of_nobody_is_empty(self, hands, address):
        assert hands.book(address) == Book(address=address)

    def test_what_was_executed_is_in_the_book(self, hands, address, command):
        decided = hands.execute(command(Increment(by=5), 0))
        assert shape(decided.events) == [(0, "Incremented", {"by": 5})]
        book = hands.book(address)
        assert shape(book.events) == shape(decided.events)
        assert (book.address, book.next_sequence) == (address, 1)

    def test_an_edition_has_a_book_of_its_own(self, hands, address):
        other = address._replace(edition="what if")
        hands.execute(Intent(address=other).command(Increment()))
        assert len(hands.book(other).events) == 1
        assert hands.book(address).events == ()

    def test_the_same_command_has_the_same_decision_and_is_carried_out_once(
        self, hands, address, command
    ):
        one = command(Increment(), 0)
        first, again = hands.execute(one), hands.execute(one)
        assert first.cause == again.cause == one.id
        assert shape(first.events) == shape(again.events)
        assert hands.book(address).next_sequence == 1

    def test_a_conflict_brings_the_current_book(self, hands, address, command):
        hands.execute(command(Increment(by=2), 0))
        with pytest.raises(SequenceConflictError) as raised:
            hands.execute(command(Increment(), 0))
        assert raised.value.book == hands.book(address)

    def test_a_command_without_expectation_is_taken_wherever_the_book_is(
        self, hands, address, command
    ):
        hands.execute(command(Increment(), 0))
        hands.execute(command(Increment()))
        assert hands.book(address).next_sequence == 2

    def test_a_strict_command_is_aborted_at_once(self, hands, address, command, reviewed):
        hands.execute(command(Increment(by=9), 0))
        with pytest.raises(CommandAbortedError) as raised:
            hands.execute(command(Spend(amount=1), 7))
        error = raised.value
        assert (error.expected, error.actual, error.review) == (7, 1, False)
        assert hands.book(address).next_sequence == 1
        assert reviewed == []

    def test_a_manual_command_is_aborted_and_comes_up_for_review_once(
        self, hands, command, reviewed
    ):
        hands.execute(command(Increment(), 0))
        stale = command(Audit(), 0)
        with pytest.raises(CommandAbortedError) as raised:
            hands.execute(stale)
        error = raised.value
        assert (error.expected, error.actual, error.review) == (0, 1, True)
        assert [(one.command.id, one.expected, one.actual) for one in reviewed] == [
            (stale.id, 0, 1)
        ]

    def test_a_rejection_says_its_reason(self, hands, command):
        with pytest.raises(CommandRejectedError, match=r"^there are only 0 ✓$"):
            hands.execute(command(Spend(amount=1), 0))

    def test_a_stale_command_is_built_anew_from_the_book_that_the_conflict_brought(
        self, hands, rival, address, command
    ):
        hands.execute(command(Increment(by=40), 0))
        seen: list[int] = []

        def build(intent: Intent, book: Book) -> object:
            seen.append(Counter(book).state.total)
            if len(seen) == 1:
                rival(command(Increment(by=2), book.next_sequence))
            return Increment(by=Counter(book).state.total)

        hands.retried(Intent(address=address), build)
        assert seen == [40, 42]
        assert Counter(hands.book(address)).state.total == 84

    def test_a_rejection_by_the_business_logic_ends_it(self, hands, address):
        def build(intent: Intent, book: Book) -> object:
            raise CommandRejectedError("no")

        with pytest.raises(CommandRejectedError, match=r"^no$"):
            hands.retried(Intent(address=address), build)

    def test_many_at_once_all_succeed_exactly_once(self, hands, address):
        def increment(by: int) -> Decision:
            return hands.retried(
                Intent(address=address), lambda intent, book: Increment(by=by), policy=PERSISTENT
            )

        numbers = [2**power for power in range(16)]
        with ThreadPoolExecutor(16) as pool:
            assert len(list(pool.map(increment, numbers))) == 16
        book = hands.book(address)
        assert sorted(event.data["by"] for event in book.events) == numbers
        assert [event.sequence for event in book.events] == list(range(16))


def shape(events) -> list:
    """What of events every client tells: who caused them is not on the wire."""
    return [(event.sequence, event.type, event.data) for event in events]
