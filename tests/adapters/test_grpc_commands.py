from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest
from tests.adapters.grpc_hands import (
    COLOURS,
    SOON,
    Connecting,
    decider,
    increment,
    server_at,
)
from tests.adapters.grpc_site import (
    EXECUTE,
    GET_EVENT_BOOK,
    CommandSite,
    Encoding,
)
from tests.contracts.command_clients import (
    CommandClientContract,
    Counter,
    Increment,
    shape,
)

from angzarr.adapters.grpc.commands import AsyncGrpcCommandClient, GrpcCommandClient
from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.command import Intent, Origin
from certificates import make_certificates


@pytest.fixture
def books(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'books.db'}", timeout=timedelta(seconds=30))
    yield SqlEventBooks(engine)
    engine.dispose()


@pytest.mark.parametrize("encoding", [Encoding.STATUS, Encoding.BARE], ids=lambda one: one.value)
@pytest.mark.parametrize("colour", COLOURS)
class TestGrpcCommands(Connecting, CommandClientContract):
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


class TestRequests(Connecting):
    def test_a_conflict_without_a_book_is_rebuilt_from_one_that_is_asked_for(
        self, hands, site, address
    ):
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

    def test_the_fields_that_a_command_book_has_not_are_metadata(self, hands, site, address):
        intent = Intent(
            address=address, id="ü 1%", correlation_id="flow", causation_id="c", tenant_id="t"
        )
        command = intent.command(Increment(), 0)
        origin = Origin(saga="seat a player ✓", source=Address("table", "t-1"), sequence=4)
        event = replace(command.event, depth=3, traceparent="00-1-2-03")
        seen = []
        site.before = lambda command, context: seen.append(command)
        hands.execute(replace(command, event=event, origin=origin))
        told = {
            key: site.metadata[key] for key in site.metadata if key.startswith(("angz", "tracep"))
        }
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


_FORKING = """
import os, sys
from angzarr.adapters.grpc.commands import GrpcCommandClient
from angzarr.adapters.grpc.commands import CommandServer
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


class TestChannels(Connecting):
    def test_a_closed_client_that_is_used_again_opens_another_channel(self, site, address):
        client = GrpcCommandClient(server_at(site.url))
        client.close()
        assert client.book(address) == Book(address=address)
        client.close()
        client.close()
        assert client.book(address) == Book(address=address)
        client.close()

    def test_one_async_client_serves_every_loop(self, site, address):
        client = AsyncGrpcCommandClient(server_at(site.url))

        async def ask() -> Book:
            try:
                return await client.book(address)
            finally:
                await client.close()
                await client.close()

        assert [asyncio.run(ask()) for _ in range(3)] == [Book(address=address)] * 3

    def test_loops_that_run_at_the_same_time_share_no_channel(self, loop, site, address):
        client = AsyncGrpcCommandClient(server_at(site.url))

        async def ask_while_the_other_has_a_channel() -> Book:
            try:
                return await client.book(address)
            finally:
                await client.close()

        assert loop.run(client.book(address)) == Book(address=address)
        assert asyncio.run(ask_while_the_other_has_a_channel()) == Book(address=address)
        assert loop.run(client.book(address)) == Book(address=address)
        loop.run(client.close())

    @pytest.fixture
    def secure(self, tmp_path) -> Iterator[tuple[CommandSite, grpc.ChannelCredentials]]:
        """A site over TLS, and what trusts it."""
        files = make_certificates(tmp_path / "tls")
        site = CommandSite(decider(MemoryEventBooks(), []))
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        site.credentials = grpc.ssl_server_credentials([pair])
        with site:
            yield site, grpc.ssl_channel_credentials(files.authority.read_bytes())

    def test_tls_serves_those_who_trust_it(self, connect, secure, address):
        site, trusting = secure
        hands = connect(site.url.replace("grpc:", "grpcs:"), credentials=trusting)
        assert hands.book(address) == Book(address=address)

    def test_a_server_that_is_not_trusted_gets_nothing(self, connect, secure, address):
        site, _ = secure
        hands = connect(site.url.replace("grpc:", "grpcs:"), deadline=SOON)
        with pytest.raises(grpc.RpcError):
            hands.execute(increment(address, 0))
        assert site.calls == {}

    @pytest.mark.parametrize("used", ["used", "unused"])
    def test_forked_children_are_served_whether_their_parent_asked_before_or_not(self, site, used):
        told = subprocess.run(
            [sys.executable, "-c", _FORKING, site.url, EXECUTE, GET_EVENT_BOOK, used],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert told.stdout.strip() == "[7, 7, 7]"
