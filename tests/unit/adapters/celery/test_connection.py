"""Which transport an app's broker connection gets, what is shown of it, and a missing client."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys

import click
import pytest
from kombu import Connection, pools

from angzarr.adapters.celery.connection import AngzarrConnection, client_of
from angzarr.errors import MissingExtra

AMQP = "angzarr.adapters.rabbitmq.transport"


def transport_of(connection):
    used = connection.get_transport_cls()
    return f"{used.__module__}:{used.__name__}"


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("redis://h", "angzarr.adapters.redis.transport:RedisTransport"),
        ("rediss://h", "angzarr.adapters.redis.transport:RedisTlsTransport"),
        ("sentinel://h", "angzarr.adapters.redis.transport:SentinelTransport"),
        ("amqp://h", f"{AMQP}:RabbitMQTransport"),
        ("pyamqp://h", f"{AMQP}:RabbitMQTransport"),
        ("amqps://h", f"{AMQP}:RabbitMQTlsTransport"),
        ("memory://", "angzarr.adapters.celery.memory_transport:MemoryTransport"),
    ],
)
def test_brokers_get_our_transports(url, used):
    assert transport_of(AngzarrConnection(url)) == used
    assert transport_of(AngzarrConnection(url).clone()) == used


@pytest.mark.parametrize("url", ["redis://h", "amqp://h"])
@pytest.mark.parametrize("setting", ["angzarr", "kombu"])
def test_what_publishes_goes_over_the_transport_that_consumes(make_app, monkeypatch, url, setting):
    monkeypatch.setenv("ANGZARR_REDIS_TRANSPORT", setting)
    app = make_app(broker=url)
    pool = app.connection_for_write().Pool(1)
    assert transport_of(pool.new()) == transport_of(app.connection_for_read())
    with app.pool.acquire() as pooled:
        assert transport_of(pooled) == transport_of(app.connection_for_read())


def test_the_next_of_several_brokers_gets_it_too():
    connection = AngzarrConnection("memory://;redis://h")
    connection.maybe_switch_next()
    assert transport_of(connection) == "angzarr.adapters.redis.transport:RedisTransport"


def test_stock_is_one_setting_away(make_app, monkeypatch):
    assert transport_of(make_app(broker="redis://h").connection()).startswith("angzarr.")
    monkeypatch.setenv("ANGZARR_REDIS_TRANSPORT", "kombu")
    stock = make_app(broker="redis://h").connection()
    assert transport_of(stock) == "kombu.transport.redis:Transport"
    assert transport_of(make_app(broker="amqp://h").connection()) == f"{AMQP}:RabbitMQTransport"


def test_what_is_shown_of_it_stays_as_it_was():
    connection = AngzarrConnection("redis://:secret@h:1/2")
    assert connection.as_uri() == "redis://:**@h:1/2"
    assert connection.as_uri() == Connection("redis://:secret@h:1/2").as_uri()


def test_what_inspect_stats_tells_is_json_without_our_callables(make_app):
    app = make_app(broker="redis://h", broker_transport_options={"lease": 4})
    told = app.connection().info()
    assert json.loads(json.dumps(told))["transport_options"] == {"lease": 4}


def test_it_shares_no_pool_with_stock_connections():
    ours, stock = AngzarrConnection("redis://h"), Connection("redis://h")
    assert hash(ours) != hash(stock)
    assert pools.connections[ours] is not pools.connections[stock]
    assert pools.connections[AngzarrConnection("redis://h")] is pools.connections[ours]
    pools.reset()


def test_a_servers_certificate_is_checked_unless_one_says_not():
    assert AngzarrConnection("rediss://h").ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    lax = AngzarrConnection("rediss://h?ssl_cert_reqs=none")
    assert lax.ssl == {"ssl_cert_reqs": ssl.CERT_NONE}
    given = {"ssl_ca_certs": "/ca.pem"}
    assert AngzarrConnection("rediss://h", ssl=given).ssl == given
    assert AngzarrConnection("redis://h").ssl is False


def test_a_process_imports_the_memory_broker_only_if_it_uses_it():
    script = "import sys, angzarr.app.angzarr; print('kombu.transport.memory' in sys.modules)"
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("broker", "missing", "extra"),
    [
        ("redis://:hunter2@h/0", "redis", "redis"),
        ("rediss://h", "packaging", "redis"),  # kombu's transport needs it, and does not bring it
        ("sentinel://a;sentinel://b", "redis", "redis"),
        ("sqs://", "botocore", "sqs"),
        ("sqs", "pycurl", "sqs"),
    ],
)
def test_a_missing_client_names_the_extra_that_brings_it(broker, missing, extra):
    with pytest.raises(MissingExtra) as caught, client_of(broker):
        raise ModuleNotFoundError(name=missing)
    assert f"pip install 'angzarr-workers[{extra}]'" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, click.ClickException), "`celery worker` shows it in one line"
    assert caught.value.format_message() == str(caught.value)


def test_a_module_that_is_missing_for_another_broker_stays_what_it_is():
    with pytest.raises(ModuleNotFoundError, match="mine"), client_of("amqp://h"):
        raise ModuleNotFoundError("mine")
