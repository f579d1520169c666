"""A Redis that deletes keys when it is full is refused at start, wherever it would be used."""

from __future__ import annotations

import logging

import pytest
from celery import Celery
from tests.apps import apps

from angzarr.adapters.redis import server as eviction
from angzarr.errors import ConfigurationError, StoreUnavailable, UnsafeSetting

pytestmark = pytest.mark.server("redis")

NOBODY = "redis://127.0.0.1:1/0"
SENTENCE = r"deletes keys when its memory is full \(maxmemory \d+, maxmemory-policy {}\).* set maxm"


@pytest.fixture
def make_app():
    with apps(dlq={"backend": "none", "accept_loss": True}) as make:
        yield make


@pytest.fixture
def made(make_redis):
    """Start a server with a limit and this policy."""
    return lambda policy, **more: make_redis(
        options={"maxmemory": "32mb", "maxmemory-policy": policy}, **more
    )


@pytest.mark.parametrize(
    "policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"]
)
def test_a_redis_that_evicts_is_refused_as_broker_with_its_claims_and_delays(
    made, make_app, policy
):
    app = make_app(broker=made(policy).url)
    with pytest.raises(UnsafeSetting, match=SENTENCE.format(policy)):
        app._runtime.check_worker("prefork")
    with pytest.raises(UnsafeSetting):  # asked again, it is refused again
        app._runtime.check_worker("prefork")


def test_a_redis_that_evicts_is_refused_as_store_of_another_broker(made, make_app):
    server = made("volatile-lfu")
    app = make_app(broker="amqp://guest:guest@127.0.0.1:1//", store=server.url)
    with pytest.raises(UnsafeSetting, match=f"127.0.0.1:{server.port}/0 deletes keys"):
        app._runtime.check_worker("prefork")


@pytest.mark.parametrize("transport", ["angzarr", "kombu"])
def test_a_redis_that_evicts_is_refused_as_broker_with_claims_elsewhere(
    made, make_app, monkeypatch, transport
):
    monkeypatch.setenv("ANGZARR_REDIS_TRANSPORT", transport)
    app = make_app(broker=made("allkeys-lfu").url, store="postgresql+psycopg://127.0.0.1:1/x")
    with pytest.raises(UnsafeSetting, match=SENTENCE.format("allkeys-lfu")):
        app._runtime.check_worker("prefork")


def test_a_redis_that_evicts_nothing_is_no_obstacle(made, make_app, make_redis):
    make_app(broker=made("noeviction").url)._runtime.check_worker("prefork")
    unlimited = make_redis(options={"maxmemory-policy": "allkeys-lru"})
    make_app(broker=unlimited.url)._runtime.check_worker("prefork")


def test_a_policy_that_was_mended_is_no_obstacle_any_more(made, make_app):
    server = made("allkeys-lru")
    app = make_app(broker=server.url)
    with pytest.raises(UnsafeSetting):
        app._runtime.check_worker("prefork")
    server.client().config_set("maxmemory-policy", "noeviction")
    app._runtime.check_worker("prefork")


@pytest.mark.parametrize("store", [None, "postgresql+psycopg://127.0.0.1:1/x"])
def test_a_redis_that_is_set_to_delete_keys_is_noticed_while_a_worker_runs(
    made, make_app, caplog, store
):
    server = made("noeviction")
    app = make_app(broker=server.url, store=store)
    app._runtime.check_worker("prefork")
    watch = app._runtime.store_watch
    watch.turn()
    assert watch.says == ""
    server.client().config_set("maxmemory-policy", "allkeys-lru")
    watch.turn()
    assert "maxmemory-policy allkeys-lru" in watch.says
    assert "store_loses_messages" in caplog.text
    server.client().config_set("maxmemory-policy", "noeviction")
    watch.turn()
    assert watch.says == ""
    server.stop()
    watch.turn()
    assert watch.says == "", "one that is away says nothing against itself"


@pytest.mark.parametrize("store", [None, "postgresql+psycopg://127.0.0.1:1/x"])
def test_a_redis_that_may_not_be_asked_is_taken_with_one_warning(made, make_app, caplog, store):
    server = made("allkeys-lru", users=["user shop on >secret ~* &* +@all -info"])
    app = make_app(broker=server.url_for(user="shop", password="secret"), store=store)
    with caplog.at_level(logging.WARNING, "angzarr.worker"):
        app._runtime.check_worker("prefork")
        app._runtime.check_worker("prefork")
    (line,) = [r.getMessage() for r in caplog.records if "eviction_unknown" in r.getMessage()]
    assert "make sure that it is noeviction" in line
    assert "secret" not in line


@pytest.mark.parametrize("told", [{}, {"maxmemory": "1000"}, {"maxmemory_policy": "allkeys-lru"}])
def test_a_redis_that_says_half_of_it_is_taken_with_a_warning(caplog, told, unique_name):
    eviction._check(lambda: told, unique_name)
    assert "eviction_unknown" in caplog.text


def test_a_redis_that_is_away_is_asked_when_it_is_there(made, make_app):
    server = made("allkeys-lru")
    server.stop()
    app = make_app(broker=server.url, store=server.url)
    app._runtime.check_worker("prefork")  # what is away is waited for
    server.start()
    try:
        with pytest.raises(ConfigurationError, match=SENTENCE.format("allkeys-lru")):
            app._runtime.begin_work()
    finally:
        app._runtime.end_work()


def test_a_redis_that_is_busy_counts_as_away(caplog, unique_name):
    def busy():
        raise StoreUnavailable("busy") from eviction.ResponseError("BUSY Redis is busy")

    eviction._check(busy, unique_name)
    assert not caplog.records
    assert unique_name not in eviction._ASKED


def test_plain_celery_over_our_transport_is_not_asked(made):
    """Who publishes, or runs plain Celery, is not stopped by what a worker refuses."""
    from angzarr.adapters.redis import transport

    app = Celery("plain", broker=made("allkeys-lru").url)
    app.conf.broker_transport = f"{transport.__name__}:RedisTransport"
    with app.connection_for_write() as connection:
        connection.SimpleQueue("q").put("x")
    app.close()
