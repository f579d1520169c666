"""What kills whoever reads it is known for it after three deaths, and what lay beside it is not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.redis_sides import OURS, STOCK, connect, consuming, held, publish

from angzarr.adapters.redis import step as returned
from angzarr.adapters.redis.session import _returned, split_held
from angzarr.adapters.redis.step import Fetched
from angzarr.delivery.unreadable import MOST_DEATHS, ReadersDied
from redis_servers import wait_until

READER = Path(__file__).with_name("redis_dying_reader.py")
GOOD = [f"good {number}" for number in range(6)]


@pytest.fixture
def reader(redis_broker, unique_name):
    """Start one that dies where it reads "killer"."""
    begun = []

    def start():
        command = [sys.executable, READER, redis_broker, unique_name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_what_kills_three_readers_is_set_aside_unread_and_all_others_are_handled(
    redis_broker, raw, unique_name, reader
):
    with connect(redis_broker, OURS) as connection:
        publish(connection, unique_name, [*GOOD[:3], "killer", *GOOD[3:]])
    sent = raw.lindex(unique_name, 3)
    for _ in range(MOST_DEATHS):
        assert reader().wait(timeout=60) == -signal.SIGKILL
    last = reader()
    said = {last.stdout.readline().strip() for _ in range(len(GOOD))}
    assert said <= set(GOOD), "and one that was handled before a death is not handled twice"
    place = f"angzarr:damaged:{unique_name}"
    wait_until(lambda: raw.llen(place), "it to be set aside")
    assert last.poll() is None, "nobody dies of it any more"
    (kept,) = raw.lrange(place, 0, -1)
    assert json.loads(kept)["body"] == json.loads(sent)["body"]
    assert not kept.startswith(b"\t"), "as it was published, but for the flag of a redelivery"
    wait_until(lambda: held(raw) == 0, "the last acknowledgement")
    assert raw.llen(unique_name) == 0


def back_from_the_dead(raw, queue, deaths):
    """Mark what waits in *queue* as if so many workers had died with it."""
    waiting = raw.lrange(queue, 0, -1)
    raw.delete(queue)
    raw.rpush(queue, *(b"\t" * deaths + one for one in waiting))


@pytest.mark.parametrize("deaths", [1, 2])
def test_what_came_back_is_read_alone_and_that_is_written_down_meanwhile(
    redis_broker, raw, unique_name, deaths
):
    told = []

    def look(message):
        (session,) = [key for key in raw.keys("unacked:*") if raw.type(key) == b"hash"]
        found = sorted(len(raw_of(value)) for value in raw.hvals(session))
        told.append((message.payload, found))

    def raw_of(value):
        message = split_held(value)[1]
        return message[: len(message) - len(message.lstrip(b"\t"))]

    with connect(redis_broker, OURS) as connection:
        connection.transport_options |= {"on_returned": look}
        publish(connection, unique_name, ["a", "b", "c"])
        back_from_the_dead(raw, unique_name, deaths)
        with consuming(connection, unique_name, prefetch=3) as inbox:
            assert inbox.wait(3) == ["a", "b", "c"]
    alone = deaths + 1
    assert told == [("a", [deaths, deaths, alone]), ("b", [deaths, alone]), ("c", [alone])]
    assert held(raw) == 0


def test_it_is_told_to_on_damaged_with_all_its_bytes(redis_broker, raw, unique_name):
    told = []
    with connect(redis_broker, OURS) as connection:
        connection.transport_options |= {"on_damaged": lambda *what: told.append(what)}
        publish(connection, unique_name, ["killer"])
        (sent,) = raw.lrange(unique_name, 0, -1)
        back_from_the_dead(raw, unique_name, MOST_DEATHS)
        publish(connection, unique_name, ["good"])
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(1) == ["good"]
            wait_until(lambda: told, "it to be told")
    [(bytes_told, queue, error)] = told
    assert (bytes_told, queue) == (sent, unique_name)
    assert isinstance(error, ReadersDied)
    assert "3 workers died" in str(error)


def test_stock_kombu_reads_what_came_back_with_ours(redis_broker, raw, unique_name):
    with connect(redis_broker, STOCK) as connection:
        publish(connection, unique_name, ["a"])
        back_from_the_dead(raw, unique_name, 2)
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(1) == ["a"]


@given(st.binary(max_size=40), st.integers(0, 9), st.booleans())
def test_bytes_of_any_kind_survive_a_return_and_are_counted(raw, deaths, dead):
    raw = raw.lstrip(b"\t")
    value = returned.held(Fetched("t", "q", b"\t" * deaths + raw, "list"))
    origin, back = split_held(value)
    assert returned.deaths(back) == deaths
    origin, back = _returned(value, dead=dead)
    assert origin == b"list"
    assert returned.deaths(back) == (max(deaths, 1) if dead else deaths)
    assert returned.without_deaths(back) == raw
