"""Which transport an app's broker connection gets, and what is shown of it."""

from __future__ import annotations

import json
import ssl

import pytest
from kombu import Connection, pools

from angzarr.adapters.celery.connection import RoadConnection


def transport_of(connection):
    used = connection.get_transport_cls()
    return f"{used.__module__}:{used.__name__}"


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("redis://h", "angzarr.adapters.redis.transport:Transport"),
        ("rediss://h", "angzarr.adapters.redis.transport:TlsTransport"),
        ("sentinel://h", "angzarr.adapters.redis.transport:SentinelTransport"),
        ("memory://", "kombu.transport.memory:Transport"),
    ],
)
def test_a_redis_broker_gets_our_transport_and_others_their_own(url, used):
    assert transport_of(RoadConnection(url)) == used
    assert transport_of(RoadConnection(url).clone()) == used


def test_the_next_of_several_brokers_gets_it_too():
    connection = RoadConnection("memory://;redis://h")
    connection.maybe_switch_next()
    assert transport_of(connection) == "angzarr.adapters.redis.transport:Transport"


def test_stock_is_one_setting_away(make_app, monkeypatch):
    assert transport_of(make_app(broker="redis://h").connection()).startswith("angzarr.")
    monkeypatch.setenv("ANGZARR_REDIS_TRANSPORT", "kombu")
    stock = make_app(broker="redis://h").connection()
    assert transport_of(stock) == "kombu.transport.redis:Transport"
    assert type(stock) is Connection


def test_what_is_shown_of_it_stays_as_it_was():
    connection = RoadConnection("redis://:secret@h:1/2")
    assert connection.as_uri() == "redis://:**@h:1/2"
    assert connection.as_uri() == Connection("redis://:secret@h:1/2").as_uri()


def test_what_inspect_stats_tells_is_json_without_our_callables(make_app):
    app = make_app(broker="redis://h", broker_transport_options={"lease": 4})
    told = app.connection().info()
    assert json.loads(json.dumps(told))["transport_options"] == {"lease": 4}


def test_it_shares_no_pool_with_stock_connections():
    ours, stock = RoadConnection("redis://h"), Connection("redis://h")
    assert hash(ours) != hash(stock)
    assert pools.connections[ours] is not pools.connections[stock]
    assert pools.connections[RoadConnection("redis://h")] is pools.connections[ours]
    pools.reset()


def test_a_servers_certificate_is_checked_unless_one_says_not():
    assert RoadConnection("rediss://h").ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    lax = RoadConnection("rediss://h?ssl_cert_reqs=none")
    assert lax.ssl == {"ssl_cert_reqs": ssl.CERT_NONE}
    given = {"ssl_ca_certs": "/ca.pem"}
    assert RoadConnection("rediss://h", ssl=given).ssl == given
    assert RoadConnection("redis://h").ssl is False
