from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from tests.adapters.grpc_hands import (
    SOON,
    Connecting,
    decider,
    failing,
    increment,
    server_at,
)
from tests.adapters.grpc_site import (
    CommandSite,
    Gate,
    status,
)
from tests.contracts.command_clients import (
    shape,
)

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.book import Book
from angzarr.aggregates.command import Intent
from angzarr.clock import SystemClock
from angzarr.errors import MaxRetriesExceededError
from angzarr.resilience.category import Category
from angzarr.resilience.taxonomy import classify
from hand_clock import HandClock
from polling import wait_until
from tcp_proxy import LossyProxy, unused_port


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


class TestOutages(Connecting):
    @pytest.fixture
    def clock(self) -> Notching:
        return Notching()

    @pytest.fixture
    def meanwhile(self) -> Iterator:
        """Run something in another thread, and return what gives its result."""
        with ThreadPoolExecutor(4) as pool:
            yield pool.submit

    def test_a_server_that_comes_up_later_is_waited_for(self, connect, clock, meanwhile, address):
        site = CommandSite(decider(MemoryEventBooks(), []))
        site.port = unused_port()
        hands = connect(site.url, clock)
        answer = meanwhile(hands.execute, increment(address, 0))
        wait_until(lambda: len(clock.pauses) >= 2, "it was tried twice")
        with site:
            assert shape(answer.result(60).events) == [(0, "Incremented", {"by": 1})]
        assert site.calls == {"execute": 1}

    def test_a_server_that_goes_away_amid_a_call_is_waited_for(
        self, connect, site, meanwhile, address
    ):
        gate = Gate()
        site.before = gate
        hands = connect(site.url)
        command = increment(address, 0)
        answer = meanwhile(hands.execute, command)
        assert gate.entered.wait(60)
        site.stop()
        site.before = lambda command, context: None
        gate.open.set()  # the first run may yet decide, after its caller has gone
        site.start()
        assert shape(answer.result(60).events) == [(0, "Incremented", {"by": 1})]
        assert site.client.book(address).next_sequence == 1
        assert site.calls == {"execute": 2}

    def test_a_line_that_loses_answers_does_no_harm(self, connect, site, clock, address):
        with LossyProxy("127.0.0.1", site.port) as proxy:
            hands = connect(f"grpc://127.0.0.1:{proxy.port}", clock)
            hands.book(address)
            proxy.lose_replies(b"Increment", times=2)
            decision = hands.execute(increment(address, 0))
        assert shape(decision.events) == [(0, "Incremented", {"by": 1})]
        assert site.client.book(address).next_sequence == 1
        assert len(clock.pauses) == 2

    def test_a_command_whose_answer_is_lost_is_carried_out_once(
        self, connect, site, clock, address
    ):
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

    def test_a_book_is_asked_for_again_too(self, connect, site, clock, address):
        with LossyProxy("127.0.0.1", site.port) as proxy:
            hands = connect(f"grpc://127.0.0.1:{proxy.port}", clock)
            proxy.cut()
            threading.Timer(0.3, proxy.mend).start()
            assert hands.book(address) == Book(address=address)
        assert clock.pauses

    def test_a_server_that_stays_away_is_given_up_within_the_deadline(
        self, connect, clock, address
    ):
        hands = connect(f"grpc://127.0.0.1:{unused_port()}", clock, deadline=SOON)
        with pytest.raises(grpc.RpcError) as raised:
            hands.execute(increment(address, 0))
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert clock.pauses
        assert sum(clock.pauses, timedelta(0)) < SOON
        said = classify(raised.value, now=clock.now())
        assert (said.category, said.code) == (Category.TRANSIENT, "GRPC_UNAVAILABLE")

    def test_a_pause_is_not_shorter_than_the_server_asks_for(self, connect, site, clock, address):
        wish = RetryInfo(retry_delay=Duration(nanos=350_000_000))
        busy = failing(grpc.StatusCode.UNAVAILABLE, status(grpc.StatusCode.UNAVAILABLE, wish))
        site.before = lambda *call: busy(*call) if site.calls["execute"] == 1 else None
        hands = connect(site.url, clock)
        hands.execute(increment(address, 0))
        assert [pause >= timedelta(seconds=0.35) for pause in clock.pauses] == [True]

    def test_a_try_has_the_time_that_is_left(self, connect, site, address):
        wish = RetryInfo(retry_delay=Duration(seconds=20))
        busy = failing(grpc.StatusCode.UNAVAILABLE, status(grpc.StatusCode.UNAVAILABLE, wish))
        left = []

        def note_and_be_busy_once(command, context) -> None:
            left.append(context.time_remaining())
            if len(left) == 1:
                busy(command, context)

        site.before = note_and_be_busy_once
        connect(site.url, HandClock(), deadline=timedelta(seconds=30)).execute(
            increment(address, 0)
        )
        first, second = left
        # On the wire a time-out is rounded up, and the server counts from when it looked last.
        assert 20 < first <= 31
        assert 0 < second <= 11

    def test_a_server_that_asks_for_more_than_there_is_is_given_up_at_once(
        self, connect, site, clock, address
    ):
        wish = RetryInfo(retry_delay=Duration(seconds=3_600))
        raw = status(grpc.StatusCode.UNAVAILABLE, wish)
        site.before = failing(grpc.StatusCode.UNAVAILABLE, raw)
        hands = connect(site.url, clock)
        with pytest.raises(grpc.RpcError):
            hands.execute(increment(address, 0))
        assert clock.pauses == []

    def test_a_slow_handler_is_not_waited_for_beyond_the_deadline(
        self, connect, site, clock, address
    ):
        site.before = gate = Gate()
        hands = connect(site.url, clock, deadline=SOON)
        with pytest.raises(grpc.RpcError) as raised:
            hands.execute(increment(address, 0))
        assert not gate.open.is_set()
        gate.open.set()
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert clock.pauses == []  # it had its time: nothing is tried again

    @pytest.mark.parametrize(
        "code", ["UNAUTHENTICATED", "INTERNAL", "RESOURCE_EXHAUSTED", "NOT_FOUND"]
    )
    def test_any_other_failure_is_raised_as_it_is(self, connect, site, clock, address, code):
        site.before = failing(grpc.StatusCode[code])
        hands = connect(site.url, clock)
        with pytest.raises(grpc.RpcError) as raised:
            hands.execute(increment(address, 0))
        assert raised.value.code() is grpc.StatusCode[code]
        assert site.calls == {"execute": 1}
        assert clock.pauses == []

    def test_a_refused_book_is_an_error_of_grpc(self, connect, site, address):
        hands = connect(site.url, max_message=1_000_000)
        site.client = None  # its handler fails
        with pytest.raises(grpc.RpcError) as raised:
            hands.book(address)
        assert raised.value.code() is grpc.StatusCode.UNKNOWN

    def test_attempts_that_are_used_up_say_so(self, hands, site, address):
        site.client.execute(increment(address))
        stale = increment(address, 0)
        policy = replace(server_at(site.url).policy, base=timedelta(0), max_attempts=3)
        with pytest.raises(MaxRetriesExceededError, match="was stale 3 times"):
            hands.retried(Intent(address=address), lambda intent, book: stale, policy=policy)
        assert site.calls["execute"] == 3
