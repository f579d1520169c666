"""What becomes of commands on any store of event books (C1 to C3). Stores' tests subclass this."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.accounts import (
    Account,
    Deposit,
    Deposited,
    Funds,
    Withdraw,
    Withdrawn,
    command,
    merging,
    new_address,
)
from tools.polling import wait_until

from angzarr.aggregates.aggregate import AggregateType
from angzarr.aggregates.book import (
    Address,
    Answer,
    Decision,
    EventBooks,
    Reading,
    Unsent,
    Write,
    WriteVerdict,
)
from angzarr.aggregates.command import Command, Intent, MergeStrategy, Origin, execute_with_retry
from angzarr.aggregates.decider import Decider, read
from angzarr.clock import SystemClock
from angzarr.errors import (
    CommandAbortedError,
    CommandRejectedError,
    IdempotencyConflictError,
    InvalidDomainName,
    InvalidRoot,
    SequenceConflictError,
    StoreUnavailable,
    UnknownCommand,
)
from angzarr.events.event import Event
from angzarr.resilience.backoff import Jitter, Policy

COMMUTATIVE, STRICT, HANDLES, MANUAL = MergeStrategy
ORIGIN = Origin(saga="seating", source=Address("table", "t-1"), sequence=4)

#: Waits next to nothing and gives up never: what is tested is what comes out in the end.
DOGGED = Policy(
    name="dogged", base=timedelta(milliseconds=1), max_delay=timedelta(milliseconds=50),
    max_attempts=10_000, jitter=Jitter.FULL,
)  # fmt: skip


def decider(books: EventBooks, kind: AggregateType = Account, **fields: Any) -> Decider:
    fields = {"clock": SystemClock(), "chance": random.random, "policy": DOGGED} | fields
    return Decider(books=books, aggregates={"account": kind}, **fields)


def counting(strategy: MergeStrategy | None) -> tuple[AggregateType, list[Command]]:
    """Return accounts of *strategy* and the commands that they ran."""
    ran: list[Command] = []

    class Counting(Account if strategy is None else merging(strategy)):
        def decide(self, command):
            ran.append(command)
            return super().decide(command)

    return Counting, ran


def outcome(run: Callable[[], object]) -> str:
    """Return ``done``, or the name of the error."""
    try:
        run()
    except Exception as error:
        return type(error).__name__
    return "done"


def at_once(count: int, run: Callable[[int], object], threads: int = 8) -> Counter[str]:
    with ThreadPoolExecutor(threads) as pool:
        return Counter(pool.map(lambda number: outcome(lambda: run(number)), range(count)))


def in_processes(count: int, run: Callable[[int], object]) -> list[Any]:
    """Run *run* in forked children at once; return what they answer."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    children = [
        fork.Process(target=lambda number=number: answers.put(run(number)))
        for number in range(count)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * count
    return [answers.get() for _ in children]


class OnceBroken(EventBooks):
    """A store whose first write is kept, and not answered."""

    def __init__(self, books: EventBooks) -> None:
        self.books, self.broken = books, False

    def read(self, address: Address, /, **wanted: Any) -> Reading:
        return self.books.read(address, **wanted)

    def write(self, write: Write, /) -> Answer:
        answer = self.books.write(write)
        if not self.broken:
            self.broken = True
            raise StoreUnavailable("the answer was lost")
        return answer

    def unsent(self, before: datetime, limit: int, /) -> Sequence[Unsent]:
        return self.books.unsent(before, limit)

    def sent(self, address: Address, cause: str, /) -> None:
        self.books.sent(address, cause)

    def prune(self, before: datetime, /, *, limit: int) -> int:
        return self.books.prune(before, limit=limit)

    def close(self) -> None: ...


class Interrupted(EventBooks):
    """A store where somebody else writes just before each of the first writes."""

    def __init__(self, books: EventBooks, before: list[Callable[[], object]]) -> None:
        self.books, self.before = books, before

    def read(self, address: Address, /, **wanted: Any) -> Reading:
        return self.books.read(address, **wanted)

    def write(self, write: Write, /) -> Answer:
        if self.before:
            self.before.pop(0)()
        return self.books.write(write)

    def unsent(self, before: datetime, limit: int, /) -> Sequence[Unsent]:
        return self.books.unsent(before, limit)

    def sent(self, address: Address, cause: str, /) -> None:
        self.books.sent(address, cause)

    def prune(self, before: datetime, /, *, limit: int) -> int:
        return self.books.prune(before, limit=limit)

    def close(self) -> None: ...


class MergingContract:
    """Subclasses give `books`."""

    @pytest.fixture
    def books(self) -> EventBooks:
        raise NotImplementedError

    @pytest.fixture
    def address(self) -> Address:
        return new_address()

    @pytest.fixture
    def deposit(self, books, address):
        def deposit(cents: int) -> Decision:
            return decider(books).execute(command(address, Deposit(cents=cents)))

        return deposit

    @pytest.fixture
    def history(self, books, address):
        """The events of the book, as one list of signed sums."""

        def history() -> list[int]:
            book = books.read(address, whole=True).book
            signs = {"Deposited": 1, "Withdrawn": -1}
            assert [one.sequence for one in book.events] == list(range(book.next_sequence))
            return [signs[one.type] * one.data["cents"] for one in book.events]

        return history

    # -- one command at a time -----------------------------------------------------------------

    def test_a_command_appends_what_was_decided(self, books, address, deposit, history):
        decision = deposit(5)
        (event,) = decision.events
        assert (event.type, event.sequence, event.root) == ("Deposited", 0, address.root)
        assert event.occurred_at is not None
        assert decision == books.read(address, cause=decision.cause).decision
        assert history() == [5]

    @pytest.mark.parametrize("expected", [None, 2])
    @pytest.mark.parametrize("strategy", MergeStrategy)
    def test_a_command_that_is_not_stale_is_carried_out(
        self, books, address, deposit, history, strategy, expected
    ):
        deposit(1), deposit(2)
        reviewed = []
        decider(books, merging(strategy), for_review=reviewed.append).execute(
            command(address, Withdraw(cents=3), expected)
        )
        assert history() == [1, 2, -3]
        assert not reviewed

    @pytest.mark.parametrize("expected", [0, 1, 3, 7])
    def test_a_stale_commutative_command_is_told_the_current_book(
        self, books, address, deposit, expected
    ):
        deposit(1), deposit(2)
        kind, ran = counting(COMMUTATIVE)
        with pytest.raises(SequenceConflictError, match=f"at {expected}, it is at 2") as caught:
            decider(books, kind).execute(command(address, Deposit(cents=3), expected))
        assert caught.value.book == books.read(address, whole=True).book
        assert caught.value.book.next_sequence == 2
        assert not ran

    def test_a_command_is_commutative_unless_its_method_or_sender_says_otherwise(
        self, books, address, deposit
    ):
        deposit(1)
        stale = command(address, Deposit(cents=3), 0)
        with pytest.raises(SequenceConflictError):
            decider(books).execute(stale)
        with pytest.raises(CommandAbortedError):
            decider(books).execute(replace(stale, merge=STRICT))
        with pytest.raises(SequenceConflictError):
            decider(books, merging(COMMUTATIVE)).execute(replace(stale, merge=STRICT))

    @pytest.mark.parametrize("expected", [0, 1, 3, 7])
    def test_a_stale_strict_command_is_aborted(self, books, address, deposit, history, expected):
        deposit(1), deposit(2)
        kind, ran = counting(STRICT)
        reviewed = []
        with pytest.raises(CommandAbortedError) as caught:
            decider(books, kind, for_review=reviewed.append).execute(
                command(address, Deposit(cents=3), expected)
            )
        told = caught.value
        assert (told.expected, told.actual, told.review) == (expected, 2, False)
        assert history() == [1, 2]
        assert not ran
        assert not reviewed

    @pytest.mark.parametrize("expected", [0, 1, 3, 7])
    def test_an_aggregate_that_handles_it_refuses_no_stale_command(
        self, books, address, deposit, history, expected
    ):
        deposit(1), deposit(2)
        kind, ran = counting(HANDLES)
        asked = command(address, Deposit(cents=3), expected)
        decider(books, kind).execute(asked)
        assert ran == [asked]
        assert history() == [1, 2, 3]

    @pytest.mark.parametrize("expected", [0, 1, 3, 7])
    def test_a_stale_manual_command_goes_to_a_person_once_and_is_not_run(
        self, books, address, deposit, history, expected
    ):
        deposit(1), deposit(2)
        kind, ran = counting(MANUAL)
        reviewed = []
        asked = command(address, Deposit(cents=3), expected)
        with pytest.raises(CommandAbortedError) as caught:
            decider(books, kind, for_review=reviewed.append).execute(asked)
        assert caught.value.review
        assert reviewed == [(asked, expected, 2, MANUAL)]
        assert history() == [1, 2]
        assert not ran

    def test_a_manual_command_that_cannot_be_put_aside_says_so(self, books, address, deposit):
        def full(_mismatch):
            raise StoreUnavailable("the queue is away")

        deposit(1)
        with pytest.raises(StoreUnavailable, match="the queue is away"):
            decider(books, merging(MANUAL), for_review=full).execute(
                command(address, Deposit(cents=3), 0)
            )

    def test_what_nobody_takes_is_told_and_leaves_nothing(self, books, address):
        asked = command(address, Deposited(cents=1))
        with pytest.raises(UnknownCommand, match="Deposited"):
            decider(books).execute(asked)
        with pytest.raises(UnknownCommand, match="account"):
            Decider(books=books, aggregates={}, clock=SystemClock(), chance=random.random).execute(
                asked
            )
        assert books.read(address, cause=asked.id) == (books.read(address).book, None)

    @pytest.mark.parametrize(
        ("address", "error"),
        [
            (Address("account", ""), InvalidRoot),
            (Address("account", "a\x00b"), InvalidRoot),
            (Address("account", "\ud800"), InvalidRoot),
            (Address("account", "x" * 256), InvalidRoot),
            (Address("account", "x", "\n"), InvalidRoot),
            (Address("No", "x"), InvalidDomainName),
        ],
    )
    def test_an_address_that_no_store_keeps_is_refused(self, books, address, error):
        with pytest.raises(error):
            decider(books).execute(command(address, Deposit(cents=1)))
        with pytest.raises(error):
            decider(books).book(address)

    @pytest.mark.parametrize("id", ["\x00", "\ud800", "ü" * 300, "🂡" * 100_000, "a:b%", " "])
    def test_any_id_of_a_command_will_do(self, books, address, history, id):
        asked = command(address, Deposit(cents=1), id=id)
        first = decider(books).execute(asked)
        assert first.cause == id
        assert decider(books).execute(asked) == first
        assert books.read(address, cause=id).decision == first
        assert history() == [1]

    @pytest.mark.parametrize("id", ["\x00", "\ud800", "a:b%", "ü" * 300])
    def test_what_was_decided_of_any_id_is_sent_once(self, books, address, id):
        asked = command(address, Deposit(cents=1), id=id)
        decision = replace(decider(books), unsent=True).execute(asked)
        tomorrow = SystemClock().now() + timedelta(days=1)
        waiting = [one for one in books.unsent(tomorrow, 100_000) if one.address == address]
        assert waiting == [(address, decision)]
        books.sent(address, waiting[0].decision.cause)
        assert address not in {one.address for one in books.unsent(tomorrow, 100_000)}

    def test_the_longest_address_and_id_of_odd_letters_will_do(self, books):
        letters = random.Random(7)
        root, edition, cause = (
            "".join(chr(letters.randrange(0x20000, 0x2A6D0)) for _ in range(255)) for _ in range(3)
        )
        address = Address("account", root, edition)
        asked = command(address, Deposit(cents=1), id=cause)
        assert decider(books).execute(asked) == decider(books).execute(asked)

    def test_a_snapshot_of_an_older_state_is_not_read(self, books, address, history):
        older = merging(COMMUTATIVE, every=2)

        class Newer(older):
            state_version = 2

        for cents in (1, 2, 3):
            decider(books, older).execute(command(address, Deposit(cents=cents)))
        assert books.read(address).book.snapshot.sequence == 2
        decider(books, Newer).execute(command(address, Withdraw(cents=6)))
        assert history() == [1, 2, 3, -6]
        assert books.read(address).book.snapshot.version == 2
        assert snapshot_agrees(books, Newer, address)
        assert older(read(books, older, address).book).state.cents == 0

    # -- the same command again ----------------------------------------------------------------

    @pytest.mark.parametrize("expected", [None, 1])
    @pytest.mark.parametrize("strategy", MergeStrategy)
    def test_a_command_that_comes_again_has_the_same_decision(
        self, books, address, deposit, history, strategy, expected
    ):
        deposit(1)
        kind, ran = counting(strategy)
        asked = command(address, Deposit(cents=3), expected)
        first = decider(books, kind).execute(asked)
        deposit(2)
        assert decider(books, kind).execute(asked) == first
        assert history() == [1, 3, 2]
        assert len(ran) == 1

    @pytest.mark.parametrize("other", [Deposit(cents=6), Withdraw(cents=5)], ids=["data", "type"])
    def test_another_command_under_the_same_id_is_refused(self, books, address, deposit, other):
        deposit(1)
        first = command(address, Deposit(cents=5), id="order-17")
        decided = decider(books).execute(first)
        with pytest.raises(IdempotencyConflictError, match="'order-17' was used before"):
            decider(books).execute(command(address, other, id="order-17"))
        assert decider(books).execute(first) == decided
        assert books.read(address).book.next_sequence == 2

    def test_a_command_that_is_rebuilt_from_fresh_state_is_the_same(self, books, address, deposit):
        deposit(1)
        first = command(address, Deposit(cents=5), 1, id="intent-1")
        decided = decider(books).execute(first)
        rebuilt = command(address, Deposit(cents=6), 2, id="intent-1")
        assert decider(books).execute(rebuilt) == decided
        with pytest.raises(IdempotencyConflictError):
            decider(books).execute(command(address, Withdraw(cents=5), 2, id="intent-1"))

    @pytest.mark.parametrize("strategy", MergeStrategy)
    def test_a_command_that_comes_many_times_at_once_is_decided_once(
        self, books, address, history, strategy
    ):
        asked = command(address, Deposit(cents=3), 0)
        kind = merging(strategy)
        with ThreadPoolExecutor(8) as pool:
            decisions = list(pool.map(lambda _: decider(books, kind).execute(asked), range(24)))
        assert decisions == [decisions[0]] * 24
        assert history() == [3]

    def test_a_command_whose_answer_was_lost_appends_once(self, books, address, history):
        broken = OnceBroken(books)
        asked = command(address, Deposit(cents=3), 0)
        with pytest.raises(StoreUnavailable):
            decider(broken).execute(asked)
        decision = decider(broken).execute(asked)
        assert [one.sequence for one in decision.events] == [0]
        assert history() == [3]

    def test_a_command_whose_answer_was_lost_is_taken_once_by_retry(
        self, books, address, history, deposit
    ):
        deposit(1)
        broken = OnceBroken(books)
        intent = Intent(address=address)

        def more(_intent, book):
            return Deposit(cents=book.next_sequence + 10)

        with pytest.raises(StoreUnavailable):
            execute_with_retry(intent, more, decider(broken))
        deposit(2)
        execute_with_retry(intent, more, decider(broken))
        assert history() == [1, 11, 2]

    # -- rejections ----------------------------------------------------------------------------

    def test_a_rejection_that_a_saga_hears_of_stays_one(self, books, address, deposit, history):
        asked = command(address, Withdraw(cents=3), origin=ORIGIN)
        with pytest.raises(CommandRejectedError, match="only 0 are left"):
            decider(books).execute(asked)
        deposit(5)
        kind, ran = counting(None)
        with pytest.raises(CommandRejectedError, match="only 0 are left"):
            decider(books, kind).execute(asked)
        assert not ran
        decision = books.read(address, cause=asked.id).decision
        assert (decision.verdict, decision.events) == (WriteVerdict.REJECTED, ())
        assert history() == [5]

    def test_a_rejection_that_a_person_hears_of_may_be_lifted(
        self, books, address, deposit, history
    ):
        asked = command(address, Withdraw(cents=3))
        with pytest.raises(CommandRejectedError):
            decider(books).execute(asked)
        assert books.read(address, cause=asked.id).decision is None
        deposit(5)
        decider(books).execute(asked)
        assert history() == [5, -3]

    def test_a_rejection_comes_through_a_race_as_it_was_first_decided(self, books, address):
        asked = command(address, Withdraw(cents=3), origin=ORIGIN)

        def first():
            decider(books).execute(command(address, Deposit(cents=5)))
            decider(books).execute(asked)

        decision = decider(Interrupted(books, [first])).execute(asked)
        assert decision.verdict is WriteVerdict.ACCEPTED

    def test_a_rejection_with_a_long_reason_is_cut(self, books, address):
        class Wordy(Account):
            def deposit(self, command):
                raise CommandRejectedError("x\x00" * 10_000)

        asked = command(address, Deposit(cents=1), origin=ORIGIN)
        for _ in range(2):
            with pytest.raises(CommandRejectedError) as caught:
                decider(books, Wordy).execute(asked)
            assert len(str(caught.value)) == 4_000

    # -- races ---------------------------------------------------------------------------------

    def test_a_lost_race_without_an_expectation_is_decided_anew(
        self, books, address, deposit, history
    ):
        deposit(10)
        rival = [
            lambda: decider(books).execute(command(address, Withdraw(cents=4))),
            lambda: decider(books).execute(command(address, Withdraw(cents=3))),
        ]
        kind, ran = counting(None)
        interrupted = Interrupted(books, rival)
        with pytest.raises(CommandRejectedError, match="only 3 are left"):
            decider(interrupted, kind).execute(command(address, Withdraw(cents=5)))
        assert len(ran) == 3
        assert history() == [10, -4, -3]

    @pytest.mark.parametrize(
        ("strategy", "error"),
        [
            (COMMUTATIVE, SequenceConflictError),
            (STRICT, CommandAbortedError),
            (MANUAL, CommandAbortedError),
        ],
    )
    def test_a_lost_race_with_an_expectation_is_as_stale_as_any(
        self, books, address, history, strategy, error
    ):
        reviewed = []
        rival = [lambda: decider(books).execute(command(address, Deposit(cents=4)))]
        carrier = decider(Interrupted(books, rival), merging(strategy), for_review=reviewed.append)
        with pytest.raises(error):
            carrier.execute(command(address, Deposit(cents=5), 0))
        assert history() == [4]
        assert len(reviewed) == (strategy is MANUAL)

    def test_a_sender_who_asks_for_no_check_overdraws_nothing(
        self, books, address, deposit, history
    ):
        deposit(5)
        rival = [lambda: decider(books).execute(command(address, Withdraw(cents=4)))]
        with pytest.raises(CommandRejectedError, match="only 1 are left"):
            decider(Interrupted(books, rival)).execute(
                command(address, Withdraw(cents=5), 0, merge=HANDLES)
            )
        decider(books).execute(command(address, Withdraw(cents=1), 0, merge=HANDLES))
        assert history() == [5, -4, -1]

    def test_a_race_that_is_lost_again_and_again_ends(self, books, address, history):
        def rival():
            decider(books).execute(command(address, Deposit(cents=1)))

        few = replace(DOGGED, max_attempts=3)
        carrier = decider(Interrupted(books, [rival] * 9), policy=few)
        with pytest.raises(SequenceConflictError, match="3 times"):
            carrier.execute(command(address, Deposit(cents=5)))
        assert history() == [1, 1, 1]

    @pytest.mark.parametrize(
        ("strategy", "others"),
        [
            (COMMUTATIVE, "SequenceConflictError"),
            (STRICT, "CommandAbortedError"),
            (HANDLES, "done"),
            (MANUAL, "CommandAbortedError"),
        ],
    )
    def test_of_sixteen_with_one_expectation_one_wins(
        self, books, address, history, strategy, others
    ):
        reviewed = []
        kind = merging(strategy)
        carrier = decider(books, kind, for_review=reviewed.append)
        came = at_once(16, lambda _: carrier.execute(command(address, Deposit(cents=1), 0)))
        assert came == Counter({"done": 1}) + Counter({others: 15})
        assert len(history()) == came["done"]
        assert len(reviewed) == (15 if strategy is MANUAL else 0)

    def test_counters_with_retry_reach_their_sum(self, books, address, history):
        carrier = decider(books, merging(COMMUTATIVE, every=7))
        came = at_once(40, lambda number: counted(carrier, address, number))
        assert came == {"done": 40}
        assert sorted(history()) == list(range(40))

    def test_money_is_never_overdrawn(self, books, address, deposit, history):
        deposit(40)
        carrier = decider(books)
        came = at_once(
            64,
            lambda number: carrier.execute(
                command(address, Withdraw(cents=3) if number % 4 else Deposit(cents=1))
            ),
        )
        assert never_below_zero(history())
        assert came["done"] == len(history()) - 1
        assert came == {"done": came["done"], "CommandRejectedError": 64 - came["done"]}

    def test_snapshots_written_at_once_are_right(self, books, address, history):
        kind = merging(COMMUTATIVE, every=3)
        carrier = decider(books, kind)
        came = at_once(40, lambda number: carrier.execute(command(address, Deposit(cents=number))))
        assert came == {"done": 40}
        assert snapshot_agrees(books, kind, address)
        assert len(history()) == 40


class SharedMergingContract(MergingContract):
    """What holds besides where several processes share the books."""

    def test_counters_of_several_processes_reach_their_sum(self, books, address, history):
        books.read(address)
        kind = merging(COMMUTATIVE, every=5)

        def run(child):
            carrier = decider(books, kind)
            return at_once(8, lambda number: counted(carrier, address, child * 8 + number), 2)

        assert in_processes(4, run) == [{"done": 8}] * 4
        assert sorted(history()) == list(range(32))
        assert snapshot_agrees(books, kind, address)

    def test_of_several_processes_with_one_expectation_one_wins(self, books, address, history):
        def run(_):
            carrier = decider(books, merging(STRICT))
            return at_once(4, lambda _: carrier.execute(command(address, Deposit(cents=1), 0)), 2)

        came = sum(in_processes(4, run), Counter())
        assert came == {"done": 1, "CommandAbortedError": 15}
        assert history() == [1]

    def test_money_is_never_overdrawn_by_several_processes(self, books, address, deposit, history):
        deposit(30)

        def run(_):
            carrier = decider(books, merging(COMMUTATIVE, every=4))
            return at_once(
                10,
                lambda number: carrier.execute(
                    command(address, Withdraw(cents=5) if number % 4 else Deposit(cents=2))
                ),
                2,
            )

        came = sum(in_processes(4, run), Counter())
        assert never_below_zero(history())
        assert came["done"] == len(history()) - 1
        assert came["done"] + came["CommandRejectedError"] == 40
        assert snapshot_agrees(books, Account, address)

    def test_commands_of_a_process_that_is_killed_may_all_be_sent_again(
        self, books, address, history
    ):
        books.read(address)
        sent = [command(address, Deposit(cents=number), id=f"c{number}") for number in range(60)]

        def run():
            for asked in sent:
                decider(books).execute(asked)

        child = multiprocessing.get_context("fork").Process(target=run)
        child.start()
        wait_until(lambda: books.read(address).book.next_sequence > 5, "some are decided")
        child.kill()
        child.join(60)
        for asked in reversed(sent):
            decider(books).execute(asked)
        assert sorted(history()) == list(range(60))

    def test_a_command_that_comes_to_several_processes_is_decided_once(
        self, books, address, history
    ):
        asked = command(address, Deposit(cents=3))

        def run(_):
            return decider(books).execute(asked)

        decisions = in_processes(4, run)
        assert decisions == [decisions[0]] * 4
        assert history() == [3]


def counted(carrier: Decider, address: Address, number: int) -> Decision:
    return execute_with_retry(
        Intent(address=address), lambda _intent, _book: Deposit(cents=number), carrier,
        policy=DOGGED,
    )  # fmt: skip


def never_below_zero(history: list[int]) -> bool:
    return all(sum(history[:place]) >= 0 for place in range(len(history) + 1))


def snapshot_agrees(books: EventBooks, kind: AggregateType, address: Address) -> bool:
    """Tell whether there is a snapshot, and the state from it is that of the whole book."""
    near = read(books, kind, address).book
    whole = books.read(address, whole=True).book
    assert near.snapshot is not None
    assert near.next_sequence == whole.next_sequence
    assert len(near.events) == whole.next_sequence - near.snapshot.sequence
    return kind(near).state == kind(whole).state == state_of(whole.events)


def state_of(events: tuple[Event, ...]) -> Funds:
    moves = [
        one.data["cents"] * (1 if one.type == Deposited.__name__ else -1)
        for one in events
        if one.type in {Deposited.__name__, Withdrawn.__name__}
    ]
    return Funds(sum(moves), moves)
