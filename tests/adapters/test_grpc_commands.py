from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from tests.adapters.grpc_site import (
    DETAILS,
    EXECUTE,
    GET_EVENT_BOOK,
    CommandSite,
    Encoding,
    Gate,
    status,
)
from tests.contracts.command_clients import (
    CommandClientContract,
    Counter,
    Hands,
    Increment,
    shape,
)

from adapters.tcp_proxy import LossyProxy, unused_port
from angzarr.adapters.grpc.async_commands import AsyncGrpcCommandClient
from angzarr.adapters.grpc.commands import GrpcCommandClient
from angzarr.adapters.grpc.server import CommandServer
from angzarr.adapters.memory.books import MemoryEventBooks
from angzarr.adapters.sql.books import SqlEventBooks
from angzarr.adapters.sql.engine import build_engine
from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.command import Origin
from angzarr.aggregates.deciding import Decider
from angzarr.aggregates.execute import Intent, aexecute_with_retry, execute_with_retry
from angzarr.aggregates.wire_form import book_to_wire
from angzarr.clock import Clock, SystemClock
from angzarr.errors import DecodeError, MaxRetriesExceededError, SequenceConflictError
from angzarr.events.event import Event
from angzarr.resilience.category import Category
from angzarr.resilience.taxonomy import classify
from certificates import make_certificates
from hand_clock import HandClock
from polling import wait_until

COLOURS = ["sync", "async"]
#: What a test waits for at most where it must not wait for long.
SOON = timedelta(seconds=0.5)


def decider(books, reviewed: list) -> Decider:
    return Decider(
        books=books,
        aggregates={"counter": Counter},
        clock=SystemClock(),
        chance=random.random,
        for_review=reviewed.append,
    )


def server_at(url: str, **fields) -> CommandServer:
    return CommandServer(url, execute=EXECUTE, get_event_book=GET_EVENT_BOOK, **fields)


class Loop:
    """An event loop in a thread, which runs coroutines for any other."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def make_hands(loop):
    """Make a client of a colour, that is closed after the test."""
    closers = []

    def make(colour: str, server: CommandServer, clock: Clock | None = None) -> Hands:
        if colour == "sync":
            client = GrpcCommandClient(server, clock=clock)
            closers.append(client.close)
            return Hands(client.book, client.execute, partial(execute_with_retry, client=client))
        twin = AsyncGrpcCommandClient(server, clock=clock)
        closers.append(lambda: loop.run(twin.close()))
        return Hands(
            lambda address: loop.run(twin.book(address)),
            lambda command: loop.run(twin.execute(command)),
            lambda *args, **named: loop.run(aexecute_with_retry(*args, client=twin, **named)),
        )

    yield make
    for close in closers:
        close()


@pytest.fixture
def books(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'books.db'}", timeout=timedelta(seconds=30))
    yield SqlEventBooks(engine)
    engine.dispose()


@pytest.mark.parametrize("encoding", [Encoding.STATUS, Encoding.BARE], ids=lambda one: one.value)
@pytest.mark.parametrize("colour", COLOURS)
class TestGrpcCommands(CommandClientContract):
    @pytest.fixture
    def site(self, books, reviewed, encoding):
        with CommandSite(decider(books, reviewed), encoding) as site:
            yield site

    @pytest.fixture
    def hands(self, make_hands, site, colour):
        return make_hands(colour, server_at(site.url))

    @pytest.fixture
    def rival(self, site):
        return site.client.execute

    def test_after_a_conflict_the_book_is_not_asked_for_again(
        self, hands, rival, site, address, command
    ):
        def build(intent: Intent, book: Book) -> object:
            if not book.events:
                rival(command(Increment(by=3), 0))
            return Increment(by=Counter(book).state.total)

        decision = hands.retried(Intent(address=address), build)
        assert shape(decision.events) == [(1, "Incremented", {"by": 3})]
        assert site.calls == {"book": 1, "execute": 2}


# -- one site, memory books ------------------------------------------------------------------------


@pytest.fixture
def address() -> Address:
    return Address("counter", "c-1")


@pytest.fixture
def site() -> Iterator[CommandSite]:
    with CommandSite(decider(MemoryEventBooks(), [])) as site:
        yield site


@pytest.fixture(params=COLOURS)
def connect(request, make_hands):
    """Make a client of each colour, for a url."""
    return lambda url, clock=None, **fields: make_hands(
        request.param, server_at(url, **fields), clock
    )


@pytest.fixture
def hands(connect, site) -> Hands:
    return connect(site.url)


def increment(address: Address, expected: int | None = None, **fields):
    return Intent(address=address, **fields).command(Increment(), expected)


def failing(code: grpc.StatusCode, *details: bytes, text: str = "as asked"):
    def fail(command, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(tuple((DETAILS, raw) for raw in details))
        context.abort(code, text)

    return fail


def test_a_conflict_without_a_book_is_rebuilt_from_one_that_is_asked_for(hands, site, address):
    site.encoding = Encoding.NONE
    seen = []

    def build(intent: Intent, book: Book) -> object:
        if not seen:
            site.client.execute(increment(address))
        seen.append(book.next_sequence)
        return Increment()

    hands.retried(Intent(address=address), build)
    assert seen == [0, 1]
    assert site.calls == {"book": 2, "execute": 2}


def test_the_fields_that_a_command_book_has_not_are_metadata(hands, site, address):
    intent = Intent(
        address=address, id="ü 1%", correlation_id="flow", causation_id="c", tenant_id="t"
    )
    command = intent.command(Increment(), 0)
    origin = Origin(saga="seat a player ✓", source=Address("table", "t-1"), sequence=4)
    event = replace(command.event, depth=3, traceparent="00-1-2-03")
    seen = []
    site.before = lambda command, context: seen.append(command)
    hands.execute(replace(command, event=event, origin=origin))
    told = {key: site.metadata[key] for key in site.metadata if key.startswith(("angz", "tracep"))}
    assert told == {
        "angzarr-event-id": "ü 1%",
        "angzarr-correlation-id": "flow",
        "angzarr-causation-id": "c",
        "angzarr-tenant-id": "t",
        "angzarr-depth": "3",
        "angzarr-saga": "seat a player ✓",
        "angzarr-sequence": "0",
        "traceparent": "00-1-2-03",
    }
    assert [one.origin for one in seen] == [origin]


# -- details that are not what they should be ------------------------------------------------------


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
def test_a_conflict_with_garbage_has_no_book(hands, site, address, raw):
    site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
    with pytest.raises(SequenceConflictError, match=r"^as asked$") as raised:
        hands.execute(increment(address, 0))
    assert raised.value.book is None


def test_a_conflict_with_the_book_of_another_has_no_book(hands, site, address):
    stranger = Book(address=address._replace(root="c-2"), next_sequence=0)
    raw = status(grpc.StatusCode.FAILED_PRECONDITION, book_to_wire(stranger))
    site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
    with pytest.raises(SequenceConflictError) as raised:
        hands.execute(increment(address, 0))
    assert raised.value.book is None


def book_of_size(address: Address, size: int) -> Book:
    event = Event(id="e", type="Noted", data="x" * size, domain=address.domain, sequence=0)
    return Book(address=address, events=(event,), next_sequence=1)


def test_a_conflict_brings_a_book_far_beyond_what_grpc_takes_by_default(hands, site, address):
    large = book_to_wire(book_of_size(address, 900_000))
    raw = status(grpc.StatusCode.FAILED_PRECONDITION, large)
    site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
    with pytest.raises(SequenceConflictError) as raised:
        hands.execute(increment(address, 0))
    assert len(raised.value.book.events[0].data) == 900_000


def test_details_beyond_the_bound_end_in_an_error_of_grpc(hands, site, address):
    huge = book_to_wire(book_of_size(address, 3_000_000))
    raw = status(grpc.StatusCode.FAILED_PRECONDITION, huge)
    site.before = failing(grpc.StatusCode.FAILED_PRECONDITION, raw)
    with pytest.raises(grpc.RpcError) as raised:
        hands.execute(increment(address, 0))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    site.before = lambda command, context: None
    hands.execute(increment(address, 0))  # the channel serves as before


# -- answers that are not what they should be ------------------------------------------------------


class Lying(CommandSite):
    """Answers every call with the same bytes."""

    answer = b""

    def _book(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        return self.answer

    def _execute(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        return self.answer


@pytest.fixture
def lying() -> Iterator[Lying]:
    with Lying(decider(MemoryEventBooks(), [])) as site:
        yield site


@pytest.mark.parametrize(
    "other", [("counter", "c-2", ""), ("player", "c-1", ""), ("counter", "c-1", "what if")]
)
def test_an_answer_of_another_aggregate_is_refused(connect, lying, address, other):
    hands = connect(lying.url)
    lying.answer = book_to_wire(Book(address=Address(*other))).SerializeToString()
    with pytest.raises(DecodeError, match="asked for counter/c-1, the answer is of"):
        hands.execute(increment(address))
    with pytest.raises(DecodeError, match="asked for counter/c-1, the answer is of"):
        hands.book(address)


@pytest.mark.parametrize("raw", [b"", b"\xff\xff", b"\x0a\x05"])
def test_an_answer_that_is_no_book_is_refused(connect, lying, address, raw):
    hands = connect(lying.url)
    lying.answer = raw
    with pytest.raises(DecodeError):
        hands.execute(increment(address))
    with pytest.raises(DecodeError):
        hands.book(address)


def test_a_book_with_holes_is_refused(connect, lying, address):
    hands = connect(lying.url)
    lying.answer = book_to_wire(
        replace(book_of_size(address, 1), next_sequence=2)
    ).SerializeToString()
    with pytest.raises(DecodeError, match="holes"):
        hands.book(address)


def test_an_answer_beyond_the_bound_ends_in_an_error_of_grpc(connect, lying, address):
    hands = connect(lying.url, max_message=1_000)
    lying.answer = book_to_wire(book_of_size(address, 2_000)).SerializeToString()
    with pytest.raises(grpc.RpcError) as raised:
        hands.book(address)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


# -- servers that are away -------------------------------------------------------------------------


class Notching(SystemClock):
    """The machine's clock, which notes the pauses."""

    def __init__(self) -> None:
        self.pauses: list[timedelta] = []

    def sleep(self, span: timedelta) -> None:
        self.pauses.append(span)
        super().sleep(span)

    async def asleep(self, span: timedelta) -> None:
        self.pauses.append(span)
        await super().asleep(span)


@pytest.fixture
def clock() -> Notching:
    return Notching()


@pytest.fixture
def meanwhile() -> Iterator:
    """Run something in another thread, and return what gives its result."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def test_a_server_that_comes_up_later_is_waited_for(connect, clock, meanwhile, address):
    site = CommandSite(decider(MemoryEventBooks(), []))
    site.port = unused_port()
    hands = connect(site.url, clock)
    answer = meanwhile(hands.execute, increment(address, 0))
    wait_until(lambda: len(clock.pauses) >= 2, "it was tried twice")
    with site:
        assert shape(answer.result(30).events) == [(0, "Incremented", {"by": 1})]
    assert site.calls == {"execute": 1}


def test_a_server_that_goes_away_amid_a_call_is_waited_for(connect, site, meanwhile, address):
    gate = Gate()
    site.before = gate
    hands = connect(site.url)
    command = increment(address, 0)
    answer = meanwhile(hands.execute, command)
    assert gate.entered.wait(10)
    site.stop()
    site.before = lambda command, context: None
    gate.open.set()  # the first run may yet decide, after its caller has gone
    site.start()
    assert shape(answer.result(30).events) == [(0, "Incremented", {"by": 1})]
    assert site.client.book(address).next_sequence == 1
    assert site.calls == {"execute": 2}


def test_a_line_that_loses_answers_does_no_harm(connect, site, clock, address):
    with LossyProxy("127.0.0.1", site.port) as proxy:
        hands = connect(f"grpc://127.0.0.1:{proxy.port}", clock)
        hands.book(address)
        proxy.lose_replies(b"Increment", times=2)
        decision = hands.execute(increment(address, 0))
    assert shape(decision.events) == [(0, "Incremented", {"by": 1})]
    assert site.client.book(address).next_sequence == 1
    assert len(clock.pauses) == 2


def test_a_command_whose_answer_is_lost_is_carried_out_once(connect, site, clock, address):
    away = failing(grpc.StatusCode.UNAVAILABLE)

    def carry_out_and_be_away(command, context) -> None:
        if site.calls["execute"] < 3:
            site.client.execute(command)
            away(command, context)

    site.before = carry_out_and_be_away
    decision = connect(site.url, clock).execute(increment(address, 0))
    assert shape(decision.events) == [(0, "Incremented", {"by": 1})]
    assert site.client.book(address).next_sequence == 1
    assert len(clock.pauses) == 2


def test_a_book_is_asked_for_again_too(connect, site, clock, address):
    with LossyProxy("127.0.0.1", site.port) as proxy:
        hands = connect(f"grpc://127.0.0.1:{proxy.port}", clock)
        proxy.cut()
        threading.Timer(0.3, proxy.mend).start()
        assert hands.book(address) == Book(address=address)
    assert clock.pauses


def test_a_server_that_stays_away_is_given_up_within_the_deadline(connect, clock, address):
    hands = connect(f"grpc://127.0.0.1:{unused_port()}", clock, deadline=SOON)
    with pytest.raises(grpc.RpcError) as raised:
        hands.execute(increment(address, 0))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert clock.pauses
    assert sum(clock.pauses, timedelta(0)) < SOON
    said = classify(raised.value, now=clock.now())
    assert (said.category, said.code) == (Category.TRANSIENT, "GRPC_UNAVAILABLE")


def test_a_pause_is_not_shorter_than_the_server_asks_for(connect, site, clock, address):
    wish = RetryInfo(retry_delay=Duration(nanos=350_000_000))
    busy = failing(grpc.StatusCode.UNAVAILABLE, status(grpc.StatusCode.UNAVAILABLE, wish))
    site.before = lambda *call: busy(*call) if site.calls["execute"] == 1 else None
    hands = connect(site.url, clock)
    hands.execute(increment(address, 0))
    assert [pause >= timedelta(seconds=0.35) for pause in clock.pauses] == [True]


def test_a_try_has_the_time_that_is_left(connect, site, address):
    wish = RetryInfo(retry_delay=Duration(seconds=20))
    busy = failing(grpc.StatusCode.UNAVAILABLE, status(grpc.StatusCode.UNAVAILABLE, wish))
    left = []

    def note_and_be_busy_once(command, context) -> None:
        left.append(context.time_remaining())
        if len(left) == 1:
            busy(command, context)

    site.before = note_and_be_busy_once
    connect(site.url, HandClock(), deadline=timedelta(seconds=30)).execute(increment(address, 0))
    first, second = left
    assert 10 < first <= 30
    assert 0 < second <= 10


def test_a_server_that_asks_for_more_than_there_is_is_given_up_at_once(
    connect, site, clock, address
):
    wish = RetryInfo(retry_delay=Duration(seconds=3_600))
    raw = status(grpc.StatusCode.UNAVAILABLE, wish)
    site.before = failing(grpc.StatusCode.UNAVAILABLE, raw)
    hands = connect(site.url, clock)
    with pytest.raises(grpc.RpcError):
        hands.execute(increment(address, 0))
    assert clock.pauses == []


def test_a_slow_handler_is_not_waited_for_beyond_the_deadline(connect, site, clock, address):
    site.before = gate = Gate()
    hands = connect(site.url, clock, deadline=SOON)
    with pytest.raises(grpc.RpcError) as raised:
        hands.execute(increment(address, 0))
    assert not gate.open.is_set()
    gate.open.set()
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert clock.pauses == []  # it had its time: nothing is tried again


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "INTERNAL", "RESOURCE_EXHAUSTED", "NOT_FOUND"])
def test_any_other_failure_is_raised_as_it_is(connect, site, clock, address, code):
    site.before = failing(grpc.StatusCode[code])
    hands = connect(site.url, clock)
    with pytest.raises(grpc.RpcError) as raised:
        hands.execute(increment(address, 0))
    assert raised.value.code() is grpc.StatusCode[code]
    assert site.calls == {"execute": 1}
    assert clock.pauses == []


def test_a_refused_book_is_an_error_of_grpc(connect, site, address):
    hands = connect(site.url, max_message=1_000_000)
    site.client = None  # its handler fails
    with pytest.raises(grpc.RpcError) as raised:
        hands.book(address)
    assert raised.value.code() is grpc.StatusCode.UNKNOWN


def test_attempts_that_are_used_up_say_so(hands, site, address):
    site.client.execute(increment(address))
    stale = increment(address, 0)
    policy = replace(server_at(site.url).policy, base=timedelta(0), max_attempts=3)
    with pytest.raises(MaxRetriesExceededError, match="was stale 3 times"):
        hands.retried(Intent(address=address), lambda intent, book: stale, policy=policy)
    assert site.calls["execute"] == 3


# -- channels --------------------------------------------------------------------------------------


def test_a_closed_client_that_is_used_again_opens_another_channel(site, address):
    client = GrpcCommandClient(server_at(site.url))
    client.close()
    assert client.book(address) == Book(address=address)
    client.close()
    client.close()
    assert client.book(address) == Book(address=address)
    client.close()


def test_one_async_client_serves_every_loop(site, address):
    client = AsyncGrpcCommandClient(server_at(site.url))

    async def ask() -> Book:
        try:
            return await client.book(address)
        finally:
            await client.close()
            await client.close()

    assert [asyncio.run(ask()) for _ in range(3)] == [Book(address=address)] * 3


@pytest.fixture
def secure(tmp_path) -> Iterator[tuple[CommandSite, grpc.ChannelCredentials]]:
    """A site over TLS, and what trusts it."""
    files = make_certificates(tmp_path / "tls")
    site = CommandSite(decider(MemoryEventBooks(), []))
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    site.credentials = grpc.ssl_server_credentials([pair])
    with site:
        yield site, grpc.ssl_channel_credentials(files.authority.read_bytes())


def test_tls_serves_those_who_trust_it(connect, secure, address):
    site, trusting = secure
    hands = connect(site.url.replace("grpc:", "grpcs:"), credentials=trusting)
    assert hands.book(address) == Book(address=address)


def test_a_server_that_is_not_trusted_gets_nothing(connect, secure, address):
    site, _ = secure
    hands = connect(site.url.replace("grpc:", "grpcs:"), deadline=SOON)
    with pytest.raises(grpc.RpcError):
        hands.execute(increment(address, 0))
    assert site.calls == {}


_FORKING = """
import os, sys
from angzarr.adapters.grpc.commands import GrpcCommandClient
from angzarr.adapters.grpc.server import CommandServer
from angzarr.aggregates.book import Address

url, execute, get_event_book, used = sys.argv[1:]
client = GrpcCommandClient(CommandServer(url, execute=execute, get_event_book=get_event_book))
address = Address("counter", "c-1")
if used == "used":
    client.book(address)
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        client.book(address)
        os._exit(7)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
client.book(address)
client.close()
"""


@pytest.mark.parametrize("used", ["used", "unused"])
def test_forked_children_open_channels_of_their_own(site, used):
    told = subprocess.run(
        [sys.executable, "-c", _FORKING, site.url, EXECUTE, GET_EVENT_BOOK, used],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "[7, 7, 7]"
