"""Where a message, or a whole fleet, could get stuck: rare faults, each made to happen once."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import redis
from kombu import Connection

from adapters.redis_hands import Late, Worker, take_time_in_hand
from adapters.redis_loop import looped
from adapters.redis_sides import connect, consuming, held, publish
from angzarr.adapters.redis.fetcher import STEP
from angzarr.adapters.redis.session import SESSIONS_A_TURN
from redis_servers import wait_until
from tcp_proxy import LossyProxy

#: Seconds. The first is longer than any test: nothing comes back by itself.
FOR_EVER, SHORT = 600.0, 0.4
AWAY = (redis.RedisError, OSError)


@pytest.fixture
def server(make_redis):
    return make_redis()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def proxy(server):
    with LossyProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def far(proxy):
    """The server's address through the proxy."""
    return f"redis://127.0.0.1:{proxy.port}/0"


def publish_to(server, queue, bodies, **properties):
    with connect(server.url) as connection:
        publish(connection, queue, bodies, **properties)


def look_for_strays(channel) -> None:
    """Let time go by in which a channel looks twice for what it holds without knowing."""
    for _ in range(2):
        channel.give_back_strays()


def kill(channel):
    """End *channel*'s worker as SIGKILL does, nothing is said; return its session's keys."""
    fetcher, session = channel.fetcher, channel._session
    channel.fetcher = channel._session = None
    session._ending.set()
    session._wake.set()
    session._thread.join()  # a renewal under way would bring the lease back
    session._link.close()
    if fetcher is not None:
        channel.connection.cycle.forget(channel)
        fetcher.listener.disconnect()
    return session.keys


def bury(client, keys) -> None:
    """Let the lease of the session with *keys* end now."""
    client.delete(keys.lease)
    client.zadd(keys.sessions, {keys.session: 0})


# -- given back while Redis is away ----------------------------------------------------------------


def test_what_is_requeued_while_redis_is_away_comes_back(server, client, proxy, far):
    publish_to(server, "q", ["a"])
    with looped(far, "q", lease=4.0) as worker:
        worker.until(lambda: worker.messages, "the message")
        proxy.cut()
        with suppress(*AWAY):
            worker.messages[0].requeue()
        proxy.mend()
        worker.rest()
        look_for_strays(worker.channel)
        worker.until(lambda: len(worker.messages) == 2, "the message once more")


def test_what_was_acknowledged_while_redis_was_away_is_not_given_back(server, client, proxy, far):
    publish_to(server, "q", [{"n": 1}, {"n": 2}])
    with looped(far, "q", lease=1.0) as worker:
        worker.until(lambda: len(worker.messages) == 2, "the messages")
        proxy.cut()
        worker.messages[0].ack()
        worker.channel.close()
        proxy.mend()
        wait_until(lambda: held(client) == 0, "the session to end")
    assert [body_of(raw) for raw in client.lrange("q", 0, -1)] == [{"n": 2}]


def test_a_consumer_closed_on_a_dead_line_gives_back_what_it_holds(server, client, proxy, far):
    publish_to(server, "q", ["a"])
    with connect(far, lease=4.0) as connection:
        with suppress(*AWAY), consuming(connection, "q", ack=False) as inbox:
            inbox.wait(1)
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.1)
            proxy.cut()
        proxy.mend()
        wait_until(lambda: client.llen("q") == 1, "the message to come back")


def test_a_consumer_goes_on_at_once_when_its_line_is_mended(server, client, proxy, far):
    with connect(far) as connection, consuming(connection, "q") as inbox:
        inbox.rest()
        proxy.cut()
        with pytest.raises(connection.connection_errors, match="onnect"):
            inbox.turn()
        proxy.mend()
        publish_to(server, "q", ["a"])
        inbox.wait(1)


def test_a_cancelled_consumer_keeps_nothing_whose_fetch_was_not_answered(
    server, client, proxy, far
):
    with looped(far, "q", lease=FOR_EVER) as worker:
        worker.rest(0.2)
        proxy.lose_replies(STEP.digest.encode())
        publish_to(server, "q", ["a"])
        wait_until(lambda: worker.turn() or held(client) == 1, "the fetch")
        worker.consumer.cancel()
        worker.rest()
        look_for_strays(worker.channel)
        assert client.llen("q") == 1


def test_basic_get_whose_reply_was_lost_hides_no_message(server, client):
    publish_to(server, "q", ["a"])
    with by_hand(server) as (worker, _):
        worker.channel.link.close()
        worker.network.fates.append("unheard")
        with suppress(*AWAY):
            worker.channel.basic_get("q")
        look_for_strays(worker.channel)
        assert worker.channel.basic_get("q") is not None


def test_what_basic_get_took_goes_back_in_its_order(server, client):
    bodies = list(range(30))
    publish_to(server, "q", bodies)
    with connect(server.url) as connection, connection.channel() as channel:
        for _ in bodies:
            channel.basic_get("q")
    assert [body_of(raw) for raw in reversed(client.lrange("q", 0, -1))] == bodies


# -- steps that arrive late ------------------------------------------------------------------------


@contextmanager
def by_hand(server, **options):
    """A worker that does only what it is told, and what its network holds back."""
    late: list[Late] = []
    undo = take_time_in_hand()
    worker = Worker(
        server.url, ["q"], lambda worker, message: worker.held.update({message: None}),
        late.append, looped=True, prefetch=5, **options,
    )  # fmt: skip
    try:
        yield worker, late
    finally:
        if worker.alive:
            worker.close()
        undo()


def test_a_step_that_arrives_again_after_its_messages_were_acknowledged_hides_none(server, client):
    publish_to(server, "q", ["a"])
    with by_hand(server) as (worker, late):
        worker.network.fates.append("late")
        wait_until(lambda: worker.turn() or worker.held, "the message, by a second connection")
        next(iter(worker.held)).ack()
        wait_until(lambda: worker.turn() or held(client) == 0, "the acknowledgement")
        publish_to(server, "q", ["b"])
        client.execute_command(*late[0].command)
        worker.turn()
        look_for_strays(worker.channel)
        wait_until(lambda: worker.turn() or len(worker.held) == 2, "the other message")


def test_a_step_that_arrives_late_names_no_message_that_an_old_acknowledgement_deletes(
    server, client
):
    publish_to(server, "q", ["a"])
    with by_hand(server) as (worker, late):
        worker.network.fates.append("late")
        wait_until(lambda: worker.turn() or worker.held, "the message, by a second connection")
        next(iter(worker.held)).ack()
        worker.network.fates.append("unheard")  # let go, but the worker does not know
        worker.turn()
        publish_to(server, "q", ["b"])
        client.execute_command(*late[0].command)
        worker.turn()  # lets go again
        look_for_strays(worker.channel)
        wait_until(lambda: worker.turn() or len(worker.held) == 2, "the other message")


def test_a_step_that_arrives_after_its_session_ended_fetches_nothing(server, client):
    client.set("owner:1", "claims keep it")
    with by_hand(server, owner_lease=lambda: "owner:1") as (worker, late):
        worker.network.fates.append("late")
        wait_until(lambda: worker.turn() or late, "the step")
        worker.close()
        publish_to(server, "q", ["a"])
        client.execute_command(*late[0].command)
        assert client.llen("q") == 1


def test_a_session_that_was_buried_fetches_nothing_before_it_is_back_on_the_list(server, client):
    """The claims' thread renews a shared lease on its own: the session's may be late, or dead."""
    publish_to(server, "q", ["a"])
    with looped(server.url, "q", lease=1.2, owner_lease=lambda: "owner:1") as other:
        other.consumer.cancel()
        with looped(server.url, "q", lease=FOR_EVER, owner_lease=lambda: "owner:2") as worker:
            worker.until(lambda: worker.messages, "the message")
            bury(client, worker.channel._session.keys)
            name = worker.channel._session.keys.session
            wait_until(lambda: client.zscore("unacked:owners", name) is None, "the burial")
            client.set("owner:2", "renewed with the claims")
            worker.messages.clear()
            worker.rest(0.5)
            kill(worker.channel)
            client.delete("owner:2")
            client.zadd("unacked:owners", {name: 0}, xx=True)  # time goes by
            wait_until(lambda: client.llen("q") == 1, "the message to come back")


# -- what nobody can give back ---------------------------------------------------------------------


@pytest.mark.parametrize("by", ["its own consumer", "others"])
def test_a_list_that_became_something_else_costs_no_message(server, client, by):
    publish_to(server, "q", ["a"])
    with looped(server.url, lease=SHORT) as other:
        with looped(server.url, "q", lease=FOR_EVER) as worker:
            worker.until(lambda: worker.messages, "the message")
            client.set("q", "not a list")
            if by == "others":
                other.channel._begin_session()
                bury(client, worker.channel._session.keys)
                time.sleep(SHORT * 3)
                assert held(client) == 1
            else:
                with suppress(*AWAY):
                    worker.messages[0].requeue()
                assert held(client) == 1
            client.delete("q")
        wait_until(lambda: client.llen("q") == 1, "the message")


@pytest.mark.parametrize("strategy", ["round_robin", "priority"])
def test_a_queue_that_is_no_list_does_not_stop_the_others(server, client, strategy):
    with looped(server.url, "a", "broken", "b", ack=True, queue_order_strategy=strategy) as worker:
        client.set("broken", "not a list")
        for number in range(5):
            publish_to(server, "a", [f"a{number}"])
            publish_to(server, "b", [f"b{number}"])
            worker.until(lambda so_far=number: len(worker.messages) == 2 * so_far + 2, "both")
        wait_until(lambda: worker.turn() or held(client) == 0, "the acknowledgements")


def test_messages_that_cannot_go_back_keep_no_others_from_it(server, client):
    with connect(server.url, lease=FOR_EVER) as connection:
        for number in range(SESSIONS_A_TURN + 1):
            queue = "broken" if number < SESSIONS_A_TURN else "fine"
            publish_to(server, queue, ["a"])
            channel = connection.channel()
            channel.basic_get(queue)
            keys = kill(channel)
            bury(client, keys)
            if queue == "fine":
                client.zadd(keys.sessions, {keys.session: 1})
        client.set("broken", "not a list")
        with connect(server.url, lease=SHORT) as living:
            living.channel()._begin_session()
            wait_until(lambda: client.llen("fine") == 1, "the message")


def test_a_message_nested_too_deeply_stops_no_judge(server, client):
    deep = b'{"body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    publish_to(server, "q", ["a"])
    publish_to(server, "p", ["b"])
    with connect(server.url, lease=FOR_EVER) as connection:
        for queue in ("q", "p"):
            channel = connection.channel()
            channel.basic_get(queue)
            if queue == "q":
                client.hset(channel._session.keys.unacked, "x:1:2", b"1:q" + deep)
            bury(client, kill(channel))
        with connect(server.url, lease=SHORT) as living:
            living.channel()._begin_session()
            wait_until(lambda: client.llen("p") == 1, "the other's message")
            wait_until(lambda: client.llen("q") == 2, "the deep one and its neighbour")


@pytest.mark.parametrize(
    "odd",
    [(b"x:1:2", b"x:no length"), (b"x:1:2", b"99:short"), (b"x:1:2", b"none"), (b"\xff", b"")],
    ids=["no length", "cut short", "no colon", "no text"],
)
def test_an_entry_that_nobody_wrote_keeps_no_others_from_going_back(server, client, odd):
    publish_to(server, "q", ["a"])
    publish_to(server, "p", ["b"])
    with connect(server.url, lease=FOR_EVER) as connection:
        for queue in ("q", "p"):
            channel = connection.channel()
            channel.basic_get(queue)
            if queue == "q":
                place = channel._session.keys.unacked
                client.hset(place, *odd)
            bury(client, kill(channel))
        with connect(server.url, lease=SHORT) as living:
            living.channel()._begin_session()
            wait_until(lambda: client.llen("p") == 1, "another's message")
            if odd[0] != b"\xff":
                wait_until(lambda: client.llen("q") == 1, "its neighbour")
            assert client.hexists(place, odd[0]), "what nobody can read stays where it is"


def test_a_judge_with_a_great_deal_to_give_back_stays_alive_itself(server, client):
    publish_to(server, "q", ["x" * 1000])
    with connect(server.url, lease=FOR_EVER) as connection:
        channel = connection.channel()
        channel.basic_get("q")
        keys = channel._session.keys
        value = client.hvals(keys.unacked)[0]
        for first in range(0, 20_000, 1000):
            tags = {f"y:{first + n}:1": value for n in range(1000)}
            client.hset(keys.unacked, mapping=tags)
        bury(client, kill(channel))
        with connect(server.url, lease=3.0) as living:
            judge = living.channel()
            judge._begin_session()
            lease, gaps = judge._session.keys.lease, 0
            while client.llen("q") < 20_001:
                gaps += not client.exists(lease)
                time.sleep(0.005)
            assert gaps == 0


# -- errors that are not outages -------------------------------------------------------------------


def test_a_long_lease_makes_no_long_way_back(server, client, proxy, far):
    with looped(far, "q", lease=FOR_EVER) as worker:
        worker.rest(0.2)
        proxy.cut()
        worker.rest(0.3)
        proxy.mend()
        publish_to(server, "q", ["a"])
        worker.until(lambda: worker.messages, "the message")


def test_forgotten_scripts_are_taught_again_under_drain_events(server, client):
    with connect(server.url) as connection, consuming(connection, "q") as inbox:
        publish_to(server, "q", ["a"])
        inbox.wait(1)
        client.script_flush()
        publish_to(server, "q", ["b"])
        inbox.wait(2)


def test_a_damaged_message_met_while_redis_goes_away_ends_no_loop(server, client, proxy, far):
    with looped(far, "q", lease=FOR_EVER) as worker:
        worker.rest(0.2)
        cut = threading.Event()

        def cut_then_read(*args, **kwargs):
            proxy.cut()
            cut.set()
            raise ValueError("damaged")

        worker.channel.Message = cut_then_read
        publish_to(server, "q", ["a"])
        worker.until(cut.is_set, "the message")
        worker.rest(0.2)
        proxy.mend()
        worker.until(lambda: client.llen("angzarr:damaged:q") == 1, "it to be set aside")


def test_fanout_that_cannot_connect_at_first_ends_no_loop(server, client, proxy, far):
    with looped(far, "q") as worker:
        worker.rest(0.1)
        worker.channel.active_fanout_queues.add("f")
        worker.channel._fanout_queues["f"] = ("fan", "")
        proxy.cut()
        worker.rest(0.3)
        proxy.mend()
        worker.rest(0.3)


def test_a_master_that_became_a_replica_is_left_for_the_new_one(make_redis, server, proxy, far):
    """An address that moves, without Sentinel: connections to the old master stay open."""
    new = make_redis()
    with looped(far, "q", lease=1.0, ack=True) as worker, Connection(far) as _:
        publish_to(server, "q", ["a"])
        worker.until(lambda: worker.messages, "the first message")
        proxy._target = ("127.0.0.1", new.port)  # for new connections
        server.client().replicaof("127.0.0.1", new.port)
        publish_to(new, "q", ["b"])
        worker.until(lambda: len(worker.messages) == 2, "the second message")


def body_of(raw: bytes) -> object:
    return json.loads(base64.b64decode(json.loads(raw)["body"]))
