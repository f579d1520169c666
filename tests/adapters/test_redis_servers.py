"""The private Redis servers do to a client what the tests that use them rely on."""

from __future__ import annotations

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from certificates import make_certificates
from redis_sentinel import MASTER
from redis_servers import wait_until


def test_a_killed_durable_server_has_its_data_on_the_same_port(private_redis):
    url, client = private_redis.url, private_redis.client()
    client.set("key", "value")
    private_redis.kill()
    assert not private_redis.running
    with pytest.raises(redis.ConnectionError):
        client.ping()
    private_redis.start()
    assert private_redis.url == url
    assert private_redis.client().get("key") == b"value"


def test_any_other_server_comes_back_empty(make_redis):
    server = make_redis()
    server.client().set("key", "value")
    server.restart()
    assert server.client().get("key") is None


def test_a_paused_server_takes_connections_and_answers_when_it_goes_on(private_redis):
    client = private_redis.client(socket_timeout=0.1)
    private_redis.pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    private_redis.resume()
    wait_until(client.ping, "an answer")


def test_a_server_with_tls_speaks_nothing_else(make_redis, tmp_path):
    server = make_redis(tls=make_certificates(tmp_path / "tls"))
    assert server.client().ping()
    with pytest.raises(redis.ConnectionError):
        redis.connection.Connection(port=server.port, retry=Retry(NoBackoff(), 0)).connect()
    other = make_certificates(tmp_path / "other").authority
    with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
        server.client(ssl_ca_certs=str(other)).ping()


def test_users_have_the_rights_of_their_line_and_the_default_user_all(make_redis):
    server = make_redis(users=["user jo on >secret ~jo:* +get +set"])
    with redis.Redis.from_url(server.url_for(user="jo", password="secret")) as jo:
        assert jo.set("jo:1", "x")
        with pytest.raises(redis.exceptions.NoPermissionError):
            jo.get("other")
    assert server.client().keys() == [b"jo:1"]


def test_a_replica_follows(make_redis):
    master = make_redis()
    replica = make_redis(replica_of=master)
    wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up", "link")
    master.client().set("key", "value")
    wait_until(lambda: replica.client().get("key") == b"value", "the replica to follow")


def test_a_node_of_a_cluster_says_so(make_redis):
    assert make_redis(cluster=True).client().info("cluster")["cluster_enabled"] == 1


@pytest.mark.parametrize("sentinels", [1, 3])
def test_after_a_failover_the_sentinels_name_the_other_server(make_sentinel, sentinels):
    fleet = make_sentinel(sentinels=sentinels)
    before = fleet.master
    before.client().set("key", "value")
    after = fleet.failover()
    assert after is not before
    assert after.client().get("key") == b"value"
    assert fleet.url.count("sentinel://") == sentinels
    assert fleet.sentinels[0].client().sentinel_get_master_addr_by_name(MASTER)[1] == after.port


def test_a_killed_master_is_replaced_and_may_come_back_as_replica(make_sentinel):
    fleet = make_sentinel(durable=True)
    before = fleet.master
    before.client().set("key", "value")
    fleet.wait_for_the_replica()
    after = fleet.kill_master()
    assert after.client().get("key") == b"value"
    before.start()
    wait_until(lambda: before.client().role()[0] == b"slave", "the old master to obey")
