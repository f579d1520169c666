"""A network that is cut, and a Redis that is frozen, paused, full or busy: one fault a test."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
import redis

from adapters.redis_loop import looped
from adapters.redis_sides import connect, held, publish
from lateness import lateness
from redis_servers import wait_until
from tcp_proxy import LossyProxy

#: Seconds. A worker may wait for a reply for half a lease, and is lost after a whole one.
LEASE, TIMEOUT = 1.0, 0.5
#: Seconds that may pass in what takes no time; more where this machine is seen to be late.
SLACK = 0.4
AWAY = (redis.RedisError, OSError)


@pytest.fixture
def server(make_redis):
    return make_redis(options={"busy-reply-threshold": "50"})


@pytest.fixture
def client(server):
    return server.client()


def send(server, count: int, start: int = 0) -> None:
    with connect(server.url) as connection:
        publish(connection, "q", range(start, start + count))


def fill(connection) -> None:
    """Publish one by one: a large request takes room itself, for a while."""
    for _ in range(1000):
        publish(connection, "q", ["x" * 5000])


def raises_in_time(connection, body="x") -> Exception:
    """Publish, and return what is raised within the time-out."""
    with lateness() as late:
        began = time.monotonic()
        with pytest.raises(AWAY) as caught:
            publish(connection, "q", [body])
        took = time.monotonic() - began
    assert took < TIMEOUT + SLACK + late.seconds
    return caught.value


# -- the network -----------------------------------------------------------------------------------


def test_messages_of_a_worker_that_is_cut_off_go_to_the_other_when_its_lease_ended(
    server, client, caplog
):
    send(server, 3)
    with LossyProxy("127.0.0.1", server.port) as proxy:
        far = f"redis://127.0.0.1:{proxy.port}/0"
        with looped(far, "q", lease=LEASE) as lost:
            lost.until(lambda: len(lost.messages) == 3, "the messages")
            with looped(server.url, "q", lease=LEASE) as other:
                other.rest(LEASE)
                assert other.messages == []
                proxy.cut()
                cut_at = time.monotonic()
                other.until(lambda: len(other.messages) == 3, "what the other had")
                assert time.monotonic() - cut_at > 0.5 * LEASE, "the lease had to end"
                assert other.bodies == lost.bodies
                assert all(message.headers["redelivered"] for message in other.messages)
                proxy.mend()
                for message in (*lost.messages, *other.messages):
                    message.ack()
                other.until(lambda: held(client) == 0, "the acknowledgements")
                lost.until(lambda: "acknowledged_too_late: 3" in caplog.text, "it to be told")
                send(server, 1, start=3)
                other.until(lambda: lost.turn() or 3 in other.bodies + lost.bodies, "another")


# -- a server that stands still --------------------------------------------------------------------


@contextmanager
def frozen(server, client, seconds: float):
    """The process stands still; its sockets stay open."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


@contextmanager
def paused(server, client, seconds: float):
    """CLIENT PAUSE: nobody is answered, not even who would end it."""
    client.client_pause(round(seconds * 1000))
    yield
    client.ping()


@contextmanager
def busy(server, client, seconds: float):
    """A script that runs for ever; other clients get the error BUSY."""

    def run() -> None:
        with redis.Redis.from_url(server.url) as other, suppress(redis.ResponseError):
            other.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: _is_busy(client), "the server to be busy")
        yield
    finally:
        client.script_kill()
        thread.join()


def _is_busy(client) -> bool:
    try:
        client.get("x")
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


stands_still = pytest.mark.parametrize("fault", [frozen, paused, busy])


@stands_still
@pytest.mark.parametrize("seconds", [0.7 * LEASE, 1.7 * LEASE], ids=["within-lease", "beyond"])
def test_a_server_that_stands_still_costs_time_and_nothing_else(
    server, client, caplog, fault, seconds
):
    """The loop is not held up, nothing is given to others, acknowledgements arrive afterwards."""
    send(server, 4)
    options = {"lease": LEASE, "socket_timeout": TIMEOUT}
    with looped(server.url, "q", **options) as one, looped(server.url, "q", **options) as other:
        one.until(lambda: len(one.messages) == 4, "the messages")
        other.rest(0.6 * LEASE)
        slowest = 0.0
        with fault(server, client, seconds), lateness() as late:
            one.messages[0].ack()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                began = time.monotonic()
                one.turn()
                other.turn()
                slowest = max(slowest, time.monotonic() - began)
            one.messages[1].ack()
        one.until(lambda: other.turn() or held(client) == 2, "the acknowledgements")
        until = time.monotonic() + 1.5 * LEASE
        while time.monotonic() < until:  # would be given back by now
            one.turn()
            other.turn()
        send(server, 6, start=4)
        one.until(
            lambda: other.turn() or len(one.messages) + len(other.messages) == 10, "the others"
        )
    assert sorted(one.bodies + other.bodies) == list(range(10)), "each once"
    assert slowest < SLACK + late.seconds
    assert "messages_given_back" not in caplog.text


@stands_still
def test_publishing_to_a_server_that_stands_still_raises_within_the_time_out(server, client, fault):
    with connect(server.url, socket_timeout=TIMEOUT) as connection:
        publish(connection, "q", ["warm"])
        with fault(server, client, TIMEOUT + SLACK):
            raises_in_time(connection)
        wait_until(client.ping, "the server")
        publish(connection, "q", ["again"])
    assert client.llen("q") >= 2


def test_publishing_over_a_new_connection_to_a_frozen_server_raises(server, client):
    with (
        connect(server.url, socket_timeout=TIMEOUT) as connection,
        frozen(server, client, 0),
        pytest.raises(AWAY + connection.connection_errors),
    ):
        publish(connection, "q", ["x"])


# -- a server that is full -------------------------------------------------------------------------


def test_a_full_server_refuses_what_is_published_and_frees_what_is_consumed(server, client):
    client.config_set("maxmemory-policy", "noeviction")
    options = {"socket_timeout": TIMEOUT, "lease": LEASE}
    with (
        connect(server.url, **options) as connection,
        looped(server.url, "q", prefetch=10, **options) as worker,
    ):
        publish(connection, "q", range(500))
        worker.until(lambda: len(worker.messages) == 10, "some")
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 200_000)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill(connection)
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 50_000)
        count = client.llen("q")
        assert "maxmemory" in str(raises_in_time(connection, "x" * 5000))
        assert client.llen("q") == count, "what was refused is not there"
        worker.rest(1.5 * LEASE)
        assert held(client) == 10, "the lease is kept on a full server"
        worker._acks = True
        for message in worker.messages:
            message.ack()
        worker.until(lambda: len(worker.messages) == count + 10, "all messages")
        worker.until(lambda: held(client) == 0, "the acknowledgements")
        publish(connection, "q", ["room again"])
        worker.until(lambda: worker.bodies[-1] == "room again", "what is published now")
    assert worker.bodies[:500] == list(range(500))


# -- nothing to do ---------------------------------------------------------------------------------


def test_an_idle_consumer_asks_redis_less_than_twice_a_second(server, client):
    """Counted without what scripts call, as the network sees it."""
    seconds, asked = 4.0, []
    with ExitStack() as stack:
        worker = stack.enter_context(looped(server.url, "q"))
        worker.rest(0.5)
        monitor = stack.enter_context(client.monitor())
        reader = threading.Thread(target=_read, args=(monitor, asked))
        reader.start()
        began = time.monotonic()
        worker.rest(seconds)
        seconds = time.monotonic() - began
        client.echo("the end")
        reader.join()
        send(server, 1)
        worker.until(lambda: worker.messages, "a message, for it is there")
    assert 1 <= len(asked) <= 2 * seconds, asked


def _read(monitor, asked: list[str]) -> None:
    for told in monitor.listen():
        if "the end" in told["command"]:
            return
        if told["client_type"] != "lua":
            asked.append(told["command"])
