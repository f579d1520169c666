"""Where a command comes from survives its headers, and ids follow from causes (C4)."""

from __future__ import annotations

import asyncio
import threading
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.accounts import ADDRESS, Account, Deposit, Deposited, Withdraw, book_of, command, event

from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import (
    Command,
    Intent,
    MergeRuling,
    MergeStrategy,
    Origin,
    aexecute_with_retry,
    execute_with_retry,
    id_after,
    merge_ruling,
    origin_headers,
    origin_of,
    task_of,
)
from angzarr.clock import SystemClock
from angzarr.errors import (
    CommandAbortedError,
    CommandRejectedError,
    MaxRetriesExceededError,
    NotAnEvent,
    SequenceConflictError,
    StoreUnavailable,
)
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.events.headers import MAX_SEQUENCE
from angzarr.resilience.backoff import delay
from angzarr.resilience.policies import NO_RETRY, POLICIES
from hand_clock import HandClock

text = st.text(st.characters(), min_size=1)
origins = st.builds(
    Origin,
    saga=text,
    source=st.builds(Address, text, text, st.just("") | text),
    sequence=st.integers(0, MAX_SEQUENCE),
)
anything = st.none() | st.text() | st.integers() | st.floats() | st.binary() | st.lists(st.none())


@given(origins)
def test_an_origin_is_read_from_its_headers(origin):
    assert origin_of(origin_headers(origin)) == origin


def test_no_origin_has_no_headers():
    assert origin_headers(None) == {}
    assert origin_of({}) is None


@given(origins, st.sampled_from([names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT,
                                 names.SOURCE_SEQUENCE]))  # fmt: skip
def test_half_an_origin_is_none(origin, missing):
    headers = origin_headers(origin)
    del headers[missing]
    assert origin_of(headers) is None


@given(st.dictionaries(st.sampled_from([
    names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT, names.SOURCE_SEQUENCE,
    names.SOURCE_EDITION,
]), anything))  # fmt: skip
def test_forged_headers_are_an_origin_or_none(headers):
    origin = origin_of(headers)
    if origin is not None:
        assert all(isinstance(one, str) for one in (origin.saga, *origin.source))
        assert 0 <= origin.sequence <= MAX_SEQUENCE


@given(st.text(st.characters()), st.text(st.characters()), st.integers(0, 9), st.integers(0, 9))
def test_an_id_follows_from_its_cause_and_place_alone(one, other, here, there):
    made = id_after(one, "account", "a", "", here)
    assert made == id_after(one, "account", "a", "", here)
    assert uuid.UUID(made)
    if (one, here) != (other, there):
        assert made != id_after(other, "account", "a", "", there)


def test_ids_do_not_depend_on_where_parts_are_cut():
    assert id_after("c", "a", "bc") != id_after("c", "ab", "c")
    assert id_after("c\x00a", "b") != id_after("c", "a", "b")


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, Address("", "", "")),
        ({"domain": "account", "root": "a"}, Address("account", "a", "")),
        ({"domain": "account", "root": "a", "edition": "x"}, Address("account", "a", "x")),
    ],
)
def test_a_command_is_what_its_event_says(fields, address):
    command = Command(event=Event(id="c", type="T", data=None, sequence=3, **fields))
    assert (command.id, command.expected, command.address) == ("c", 3, address)


def test_the_task_of_a_command_needs_no_import():
    assert task_of("account", "Deposit") == "command.account.Deposit"


POLICY = POLICIES["saga_command"]
DONE = Decision(cause="i-1")
INTENT = Intent(
    address=ADDRESS, id="i-1", correlation_id="flow", causation_id="e-1", tenant_id="t", data=5
)


def book(count: int) -> Book:
    return book_of(*[event(Deposited(cents=10))] * count)


def conflict(count: int | None) -> SequenceConflictError:
    return SequenceConflictError("stale", None if count is None else book(count))


class Client:
    """Answers as it was told, one answer a command."""

    def __init__(self, *answers, books=(0, 100, 200, 300)):
        self.answers = list(answers)
        self.books = [book(count) for count in books]
        self.asked: list[Address] = []
        self.took: list[Command] = []

    def book(self, address):
        self.asked.append(address)
        return self.books.pop(0)

    def execute(self, command):
        self.took.append(command)
        answer = self.answers.pop(0) if self.answers else DONE
        if isinstance(answer, Exception):
            raise answer
        return answer


class Async:
    """The same client, awaited."""

    def __init__(self, client):
        self.client = client

    async def book(self, address):
        return self.client.book(address)

    async def execute(self, command):
        return self.client.execute(command)


class Watched(HandClock):
    def __init__(self):
        super().__init__()
        self.slept: list[timedelta] = []

    def sleep(self, span):
        self.slept.append(span)
        super().sleep(span)


def in_sync(intent, build, client, **fields):
    return execute_with_retry(intent, build, client, **fields)


def in_async(intent, build, client, **fields):
    return asyncio.run(aexecute_with_retry(intent, build, Async(client), **fields))


@pytest.fixture(params=[in_sync, in_async])
def run(request):
    return request.param


@pytest.fixture
def clock():
    return Watched()


class Logic:
    """Asks for a deposit of as many cents as there are events; notes what it saw."""

    def __init__(self):
        self.saw = []

    def __call__(self, intent, book):
        self.saw.append((intent, book))
        return Deposit(cents=book.next_sequence)


def test_a_command_that_is_taken_at_once_is_built_from_the_clients_book(run, clock):
    client, logic = Client(books=[3]), Logic()
    assert run(INTENT, logic, client, clock=clock) is DONE
    assert logic.saw == [(INTENT, book(3))]
    assert (client.asked, clock.slept) == ([ADDRESS], [])
    (took,) = client.took
    assert took == command(
        ADDRESS, Deposit(cents=3), 3, id="i-1", correlation_id="flow", causation_id="e-1",
        tenant_id="t",
    )  # fmt: skip


def test_after_a_conflict_the_command_is_built_from_the_errors_book(run, clock):
    client, logic = Client(conflict(7), conflict(9), books=[3]), Logic()
    run(INTENT, logic, client, clock=clock)
    assert [seen.next_sequence for _, seen in logic.saw] == [3, 7, 9]
    assert [(took.expected, took.event.data) for took in client.took] == [
        (3, {"cents": 3}), (7, {"cents": 7}), (9, {"cents": 9}),
    ]  # fmt: skip
    assert client.asked == [ADDRESS]


def test_a_conflict_without_a_book_has_the_client_asked_again(run, clock):
    client, logic = Client(conflict(None), conflict(7), conflict(None), books=[3, 5, 8]), Logic()
    run(INTENT, logic, client, clock=clock)
    assert [seen.next_sequence for _, seen in logic.saw] == [3, 5, 7, 8]


def test_an_empty_book_in_an_error_is_a_book(run, clock):
    client, logic = Client(conflict(0), books=[3]), Logic()
    run(INTENT, logic, client, clock=clock)
    assert [seen.next_sequence for _, seen in logic.saw] == [3, 0]


def test_each_attempt_is_the_same_intent(run, clock):
    client = Client(conflict(7), conflict(None))
    run(INTENT, Logic(), client, clock=clock)
    assert {took.id for took in client.took} == {"i-1"}
    assert {took.event.correlation_id for took in client.took} == {"flow"}


def test_an_intent_without_a_correlation_begins_one(run, clock):
    client = Client()
    intent = Intent(address=Address("account", "a", "what-if"))
    run(intent, Logic(), client, clock=clock)
    (took,) = client.took
    assert took.event.correlation_id == took.id == intent.id
    assert took.address == intent.address
    assert Intent(address=ADDRESS).id != Intent(address=ADDRESS).id


def test_a_rejection_by_the_logic_ends_it(run, clock):
    def refuse(intent, book):
        raise CommandRejectedError(f"only {Account(book).state.cents} are left")

    client, letters = Client(), []
    with pytest.raises(CommandRejectedError, match="only 0"):
        run(INTENT, refuse, client, clock=clock, dead_letter=lambda *it: letters.append(it))
    assert (client.took, letters) == ([], [])


def test_the_logic_may_reject_once_it_has_seen_fresh_state(run, clock):
    def withdraw(intent, book):
        if Account(book).state.cents < 25:
            raise CommandRejectedError("too poor")
        return Withdraw(cents=25)

    client = Client(conflict(2), books=[3])
    with pytest.raises(CommandRejectedError, match="too poor"):
        run(INTENT, withdraw, client, clock=clock)
    assert len(client.took) == 1


@pytest.mark.parametrize(
    "error",
    [
        CommandRejectedError("no"),
        CommandAbortedError("stale", expected=1, actual=2),
        StoreUnavailable("away"),
        ZeroDivisionError("x"),
    ],
)
def test_any_other_error_is_raised_at_once(run, clock, error):
    client, letters = Client(error), []
    with pytest.raises(type(error)) as caught:
        run(INTENT, Logic(), client, clock=clock, dead_letter=lambda *it: letters.append(it))
    assert caught.value is error
    assert (len(client.took), letters, clock.slept) == (1, [], [])


def test_an_error_of_the_clients_book_is_raised(run, clock):
    client = Client(books=[])
    with pytest.raises(IndexError):
        run(INTENT, Logic(), client, clock=clock)


@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_the_waits_are_those_of_the_policy(run, clock, chance):
    client = Client(*[conflict(7)] * 4)
    run(INTENT, Logic(), client, clock=clock, chance=lambda: chance)
    assert clock.slept == [delay(POLICY, attempt, chance) for attempt in (1, 2, 3, 4)]
    assert clock.slept[0] == timedelta(milliseconds=10) * (1 + chance / 2)


def test_attempts_used_up_are_told_and_put_aside_once(run, clock):
    told = [conflict(count) for count in range(POLICY.max_attempts)]
    client, letters = Client(*told), []
    with pytest.raises(MaxRetriesExceededError, match=r"stale 10 times.*last: stale") as caught:
        run(INTENT, Logic(), client, clock=clock, dead_letter=lambda *it: letters.append(it))
    assert caught.value.__cause__ is told[-1]
    assert letters == [(client.took[-1], told[-1])]
    assert len(client.took) == POLICY.max_attempts
    assert len(clock.slept) == POLICY.max_attempts - 1


def test_attempts_used_up_are_told_without_a_place_for_letters(run, clock):
    with pytest.raises(MaxRetriesExceededError, match="stale 1 times"):
        run(INTENT, Logic(), Client(conflict(7)), clock=clock, policy=NO_RETRY)


def test_a_letter_that_cannot_be_written_is_told(run, clock):
    def away(command, error):
        raise StoreUnavailable("the queue is away")

    with pytest.raises(StoreUnavailable, match="the queue is away"):
        run(INTENT, Logic(), Client(conflict(7)), clock=clock, policy=NO_RETRY, dead_letter=away)


def test_a_policy_may_be_given(run, clock):
    with pytest.raises(MaxRetriesExceededError):
        run(
            INTENT, Logic(), Client(*[conflict(7)] * 3), clock=clock,
            policy=replace(POLICY, max_attempts=3),
        )  # fmt: skip
    assert len(clock.slept) == 2


def test_a_command_of_the_logics_own_is_sent_as_it_is(run, clock):
    origin = Origin(saga="s", source=Address("table", "t"), sequence=1)
    own = command(ADDRESS, Deposit(cents=1), 2, origin=origin)
    client = Client()
    run(INTENT, lambda intent, book: own, client, clock=clock)
    assert client.took == [own]


def test_a_command_of_the_logics_own_expects_the_book_that_it_was_built_from(run, clock):
    own = command(ADDRESS, Deposit(cents=1))
    client = Client(conflict(7), books=[3])
    run(INTENT, lambda intent, book: own, client, clock=clock)
    assert [took.expected for took in client.took] == [3, 7]
    assert own.expected is None


@pytest.mark.parametrize("built", [None, 7, "Deposit", {"cents": 1}, Deposit, [Deposit(cents=1)]])
def test_what_is_no_command_is_refused(run, clock, built):
    client = Client()
    with pytest.raises(NotAnEvent):
        run(INTENT, lambda intent, book: built, client, clock=clock)
    assert client.took == []


# -- what is asynchronous ------------------------------------------------------------------------


def test_waiting_lets_the_loop_go_on():
    """Two intents wait for each other: each conflicts until the other one was tried."""
    tried: list[str] = []

    class Waiting(Async):
        def __init__(self, name, other):
            super().__init__(Client(books=[0]))
            self.name, self.other = name, other

        async def execute(self, command):
            tried.append(self.name)
            if self.other not in tried:
                raise conflict(0)
            return DONE

    async def both():
        async with asyncio.timeout(30):
            return await asyncio.gather(
                aexecute_with_retry(INTENT, Logic(), Waiting("a", "b"), clock=SystemClock()),
                aexecute_with_retry(INTENT, Logic(), Waiting("b", "a"), clock=SystemClock()),
            )

    assert asyncio.run(both()) == [DONE, DONE]


def test_a_letter_is_written_beside_the_loop():
    """The loop goes on while it is written, and lets it be finished."""
    released = threading.Event()

    async def main():
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def bury(command, error):
            loop.call_soon_threadsafe(begun.set)
            assert released.wait(60)

        async with asyncio.timeout(60):
            burying = asyncio.ensure_future(
                aexecute_with_retry(
                    INTENT, Logic(), Async(Client(conflict(1))), policy=NO_RETRY, dead_letter=bury
                )
            )
            await begun.wait()
            released.set()
            with pytest.raises(MaxRetriesExceededError):
                await burying

    asyncio.run(main())


sequences = st.integers(0, 2**31)


@pytest.mark.parametrize(
    ("strategy", "number", "done"),
    [
        (MergeStrategy.COMMUTATIVE, 0, MergeRuling.STALE),
        (MergeStrategy.STRICT, 1, MergeRuling.ABORT),
        (MergeStrategy.AGGREGATE_HANDLES, 2, MergeRuling.RUN),
        (MergeStrategy.MANUAL, 3, MergeRuling.REVIEW),
    ],
)
@given(expected=sequences, actual=sequences)
def test_a_wrong_expectation_is_ruled_by_the_strategy(strategy, number, done, expected, actual):
    assert strategy == number
    wanted = MergeRuling.RUN if expected == actual else done
    assert merge_ruling(strategy, expected, actual) is wanted


@given(st.sampled_from(MergeStrategy), sequences)
def test_no_expectation_or_the_right_one_is_run(strategy, actual):
    assert merge_ruling(strategy, None, actual) is MergeRuling.RUN
    assert merge_ruling(strategy, actual, actual) is MergeRuling.RUN
