"""What a Redis user must be allowed, so that a worker on this transport can do its work."""

from __future__ import annotations

import pytest
from kombu import Exchange, Producer, Queue
from kombu.exceptions import OperationalError
from tests.adapters.redis_sides import (
    STOCK,
    connect,
    consuming,
    open_once,
    passes_a_message,
    publish,
)

#: All that a worker on this transport asks of Redis for one application, whose keys begin with
#: its name (`global_keyprefix`): nobody else's keys, no administration. Besides: "+select" for
#: a database other than 0, "+client|setname" for the option `client_name`.
#: Each fanout exchange is named, since a user may PSUBSCRIBE only to what is written here letter
#: by letter; Celery's remote control needs "&shop:/0.celery.pidbox".
#: "+info" may be left out: the server is not checked then. Without "&__redis__:invalidate" or
#: "+client|tracking" an idle worker asks ten times a second instead of being woken.
RIGHTS = (
    "~shop:* resetchannels &shop:/0.q-all &__redis__:invalidate -@all "
    "+ping +info +client|id +client|tracking +subscribe "  # the server, and the keyspace listener
    "+lpush +rpush +rpop +llen +del +exists +pexpire "  # queues
    "+hset +hget +hmget +hkeys +hlen +hexists +hdel +get +set +pttl "  # what is held, and leases
    "+zadd +zrange +zrem +zscore +time "  # who holds it
    "+sadd +srem +smembers +zrangebyscore "  # bindings
    "+publish +psubscribe +punsubscribe "  # fanout
    "+eval +evalsha +script|load +script|exists +multi +exec +watch"
)


@pytest.fixture
def as_user(make_redis):
    """Start a server on which the user of one application has *rights*; return it and an URL."""

    def start(rights):
        server = make_redis(users=[f"user shop on >secret {rights}"])
        return server, server.url_for(user="shop", password="secret")

    return start


def test_a_user_needs_no_more_rights_than_these(as_user):
    server, url = as_user(RIGHTS)
    raw = server.client()
    with connect(url, global_keyprefix="shop:") as connection, connection.channel() as channel:
        passes_a_message(connection, "q")
        publish(connection, "q", range(4))
        assert channel.queue_declare("q", passive=True).message_count == 4
        with consuming(connection, "q", ack=False, prefetch=3) as inbox:
            inbox.wait(3)
            inbox.messages[0].reject()
            inbox.messages[1].requeue()
        channel.basic_get("q").ack()
        assert channel.queue_purge("q") == 2
        raw.lpush("shop:q", b"damaged")
        with consuming(connection, "q") as inbox:
            inbox.rest(0.1)
        assert raw.lrange("shop:angzarr:damaged:q", 0, -1) == [b"damaged"]
        expiring = Queue("e", Exchange("x"), "k", expires=60)
        with consuming(connection, expiring) as inbox:
            Producer(inbox.channel, expiring.exchange).publish("z", routing_key="k")
            assert inbox.wait(1) == ["z"]
            expiring(inbox.channel).delete()
        heard = Queue("mine", Exchange("q-all", "fanout"), auto_delete=True)
        with consuming(connection, heard, no_ack=True) as inbox:
            inbox.turn()
            inbox.consumer.cancel()
    refused = {entry["object"] for entry in raw.acl_log()}
    assert refused <= {"client|setinfo"}  # a server from 7.2 on is told the client's name


def test_these_rights_suffice_to_give_back_what_the_dead_left(as_user):
    server, url = as_user(RIGHTS)
    raw = server.client()
    with connect(server.url, STOCK, global_keyprefix="shop:") as killed:
        publish(killed, "q", ["left by stock"])
        with consuming(killed, "q", ack=False) as inbox:
            inbox.wait(1)
            inbox.channel.do_restore = False
    raw.zadd("shop:unacked_index", dict.fromkeys(raw.zrange("shop:unacked_index", 0, -1), 1))
    with connect(url, global_keyprefix="shop:") as killed:
        publish(killed, "q", ["left by ours"])
        envelope = raw.rpop("shop:q")
    session = "shop:angzarr:owner:gone#1"
    raw.zadd("shop:unacked:owners", {session: 1})
    raw.hset(f"shop:unacked:{session}", "gone:1:1", b"6:shop:q" + envelope)
    with (
        connect(url, global_keyprefix="shop:", lease=1, unacked_restore_throttle=1) as connection,
        consuming(connection, "q") as inbox,
    ):
        assert sorted(inbox.wait(2)) == ["left by ours", "left by stock"]
    refused = {entry["object"] for entry in raw.acl_log()}
    assert refused <= {"client|setinfo"}


@pytest.mark.parametrize("missing", ["+client|tracking", "&__redis__:invalidate", "+info"])
def test_without_some_rights_it_is_only_slower(as_user, missing):
    _, url = as_user(RIGHTS.replace(missing, ""))
    with connect(url, global_keyprefix="shop:") as connection:
        passes_a_message(connection, "q")


def test_a_wrong_password_is_refused(make_redis, unique_name):
    server = make_redis(users=["user jo on >secret ~* &* +@all"])
    with (
        connect(server.url_for(user="jo", password="wrong")) as connection,
        pytest.raises(OperationalError, match="invalid username-password"),
    ):
        open_once(connection)
    with connect(server.url_for(user="jo", password="secret")) as connection:
        passes_a_message(connection, unique_name)
