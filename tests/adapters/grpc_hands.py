"""Clients of both colours, called alike, and the sites they talk to."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import grpc
import pytest
from tests.adapters.grpc_site import DETAILS, EXECUTE, GET_EVENT_BOOK, CommandSite
from tests.contracts.command_clients import Counter, Hands, Increment

from angzarr.adapters.grpc.commands import AsyncGrpcCommandClient, CommandServer, GrpcCommandClient
from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.command import Intent, aexecute_with_retry, execute_with_retry
from angzarr.aggregates.decider import Decider
from angzarr.clock import Clock, SystemClock
from angzarr.events.event import Event

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


def increment(address: Address, expected: int | None = None, **fields):
    return Intent(address=address, **fields).command(Increment(), expected)


def failing(code: grpc.StatusCode, *details: bytes, text: str = "as asked"):
    def fail(command, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(tuple((DETAILS, raw) for raw in details))
        context.abort(code, text)

    return fail


def book_of_size(address: Address, size: int) -> Book:
    event = Event(id="e", type="Noted", data="x" * size, domain=address.domain, sequence=0)
    return Book(address=address, events=(event,), next_sequence=1)


class Connecting:
    """Gives what the tests of both colours need."""

    @pytest.fixture
    def loop(self) -> Iterator[Loop]:
        loop = Loop()
        yield loop
        loop.close()

    @pytest.fixture
    def make_hands(self, loop):
        """Make a client of a colour, that is closed after the test."""
        closers = []

        def make(colour: str, server: CommandServer, clock: Clock | None = None) -> Hands:
            if colour == "sync":
                client = GrpcCommandClient(server, clock=clock)
                closers.append(client.close)
                return Hands(
                    client.book, client.execute, partial(execute_with_retry, client=client)
                )
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
    def address(self) -> Address:
        return Address("counter", "c-1")

    @pytest.fixture
    def site(self) -> Iterator[CommandSite]:
        with CommandSite(decider(MemoryEventBooks(), [])) as site:
            yield site

    @pytest.fixture(params=COLOURS)
    def connect(self, request, make_hands):
        """Make a client of each colour, for a url."""
        return lambda url, clock=None, **fields: make_hands(
            request.param, server_at(url, **fields), clock
        )

    @pytest.fixture
    def hands(self, connect, site) -> Hands:
        return connect(site.url)
