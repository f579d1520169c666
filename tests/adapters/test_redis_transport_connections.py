"""Ways to a Redis server: databases, prefixes, TLS, unix sockets; and the way to none."""

from __future__ import annotations

import ssl
from urllib.parse import quote

import pytest
from kombu import Exchange, Producer, Queue
from kombu.exceptions import OperationalError
from tests.adapters.redis_sides import (
    OURS,
    STOCK,
    both_ways,
    connect,
    consuming,
    each_side,
    open_once,
    passes_a_message,
    publish,
)
from tools.tcp_proxy import unused_port

from certificates import make_certificates
from redis_servers import PrivateRedis, wait_until


def nobody_is_connected(server: PrivateRedis) -> None:
    """Wait until the only connection is the one that asks; garbage is not collected for it."""
    client = server.client()
    wait_until(lambda: len(client.client_list()) == 1, "the connections to be closed")


# -- databases and prefixes ------------------------------------------------------------------


def test_databases_are_apart(private_redis, unique_name):
    zero, five = private_redis.url, private_redis.url_for(database=5)
    with connect(zero) as first, connect(five) as second:
        exchange = Exchange(f"{unique_name}-all", "fanout")
        queue = Queue(f"{unique_name}-mine", exchange)
        with (
            consuming(first, unique_name) as left,
            consuming(second, unique_name) as right,
            consuming(second, queue, no_ack=True) as heard,
        ):
            publish(first, unique_name, ["zero"])
            publish(second, unique_name, ["five"])
            assert left.wait(1) == ["zero"]
            assert right.wait(1) == ["five"]
            while not heard.messages:
                Producer(first, exchange).publish("zero")
                Producer(second, exchange).publish("five")
                heard.turn()
            assert set(heard.rest()) == {"five"}
        publish(second, unique_name, ["six"])
    assert private_redis.client(database=5).llen(unique_name) == 1
    assert private_redis.client().dbsize() == 0


@both_ways
def test_a_key_prefix_is_before_every_key(private_redis, unique_name, one, other):
    raw = private_redis.client()
    options = {"global_keyprefix": "shop:"}
    with connect(private_redis.url, one, **options) as writer:
        publish(writer, unique_name, [1], priority=3)
        publish(writer, unique_name, [2])
        assert raw.llen(f"shop:{unique_name}") == 1
        with (
            connect(private_redis.url, other, **options) as reader,
            consuming(reader, unique_name, prefetch=1, ack=False) as inbox,
        ):
            assert inbox.wait(1) == [2]
            assert all(key.startswith(b"shop:") for key in raw.keys("*"))
            passes_a_message(writer, f"{unique_name}-2")
            inbox.messages[0].ack()
            assert inbox.wait(2) == [2, 1]
            inbox.messages[1].requeue()
            inbox.wait(3)
        assert raw.lrange(f"shop:{unique_name}\x06\x163", 0, -1) != []
        assert all(key.startswith(b"shop:") for key in raw.keys("*"))


def test_a_queue_behind_a_prefix_can_be_counted(private_redis, unique_name):
    """Stock finds no such queue: it looks for it without the prefix."""
    with connect(private_redis.url, global_keyprefix="shop:") as connection:
        publish(connection, unique_name, [1, 2])
        with connection.channel() as channel:
            assert channel.queue_declare(unique_name, passive=True).message_count == 2


def test_a_prefix_keeps_applications_apart(private_redis, unique_name):
    with (
        connect(private_redis.url, global_keyprefix="a:") as first,
        connect(private_redis.url, global_keyprefix="b:") as second,
        consuming(first, unique_name) as left,
        consuming(second, unique_name) as right,
    ):
        publish(first, unique_name, ["a"])
        publish(second, unique_name, ["b"])
        assert (left.rest(), right.rest()) == (["a"], ["b"])


# -- TLS -------------------------------------------------------------------------------------


@pytest.fixture
def tls_redis(make_redis, tmp_path):
    return make_redis(tls=make_certificates(tmp_path / "right"))


def tls_options(authority) -> dict:
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(authority)}


@each_side
def test_messages_go_over_tls(tls_redis, unique_name, side):
    options = tls_options(tls_redis.tls.authority)
    with connect(tls_redis.url, side, ssl=options) as connection:
        passes_a_message(connection, unique_name)


@each_side
def test_the_address_may_name_the_authority(tls_redis, unique_name, side):
    query = f"ssl_cert_reqs=required&ssl_ca_certs={quote(str(tls_redis.tls.authority), safe='')}"
    with connect(f"{tls_redis.url}?{query}", side) as connection:
        passes_a_message(connection, unique_name)


@each_side
def test_a_server_that_another_authority_vouches_for_is_refused(tls_redis, tmp_path, side):
    other = make_certificates(tmp_path / "wrong")
    with (
        connect(tls_redis.url, side, ssl=tls_options(other.authority)) as connection,
        pytest.raises(OperationalError, match="certificate verify failed"),
    ):
        open_once(connection)


def test_our_scheme_for_tls_checks_the_server_unasked(tls_redis, unique_name):
    url = tls_redis.url.replace("rediss://", "angzarr-rediss://")
    with (
        connect(url, None) as connection,
        pytest.raises(OperationalError, match="certificate verify failed"),
    ):
        open_once(connection)
    with connect(url, None, ssl=tls_options(tls_redis.tls.authority)) as connection:
        passes_a_message(connection, unique_name)


def test_our_scheme_without_tls(private_redis, unique_name):
    url = private_redis.url.replace("redis://", "angzarr-redis://")
    with connect(url, None) as connection:
        passes_a_message(connection, unique_name)


# -- unix sockets ----------------------------------------------------------------------------


@pytest.mark.parametrize("database", [0, 3])
@pytest.mark.parametrize(
    ("scheme", "side"), [("angzarr-redis", OURS), ("redis", STOCK)], ids=["ours", "stock"]
)
def test_a_unix_socket(private_redis, unique_name, scheme, side, database):
    """The word before the + chooses the transport, whatever else was asked for."""
    url = f"{scheme}+socket://{private_redis.socket}?virtual_host={database}"
    with connect(url, side) as connection:
        passes_a_message(connection, unique_name)
        publish(connection, unique_name, ["left"])
    assert private_redis.client(database=database).llen(unique_name) == 1


# -- servers that will not do ----------------------------------------------------------------


def test_a_node_of_a_cluster_is_refused_in_one_sentence(make_redis, unique_name):
    server = make_redis(cluster=True)
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    with (
        connect(server.url) as connection,
        pytest.raises(OperationalError) as refused,
    ):
        publish(connection, unique_name, ["x"])
    assert str(refused.value).startswith("Redis Cluster is not supported as a broker: ")
    assert "\n" not in str(refused.value)
    assert server.client().dbsize() == 0


@each_side
def test_a_server_that_is_not_there_is_said_at_once(side):
    with connect(f"redis://127.0.0.1:{unused_port()}/0", side) as connection:
        with pytest.raises(OperationalError, match="refused") as error:
            open_once(connection)
        assert isinstance(error.value.__cause__, connection.connection_errors)


def test_a_channel_that_cannot_be_opened_leaves_no_connection(make_redis):
    server = make_redis(cluster=True)
    for _ in range(3):
        with connect(server.url) as connection, pytest.raises(OperationalError):
            open_once(connection)
    nobody_is_connected(server)


def test_closing_leaves_no_connection(private_redis, unique_name):
    for side in (OURS, STOCK):
        with connect(private_redis.url, side) as connection:
            passes_a_message(connection, unique_name)
        nobody_is_connected(private_redis)
