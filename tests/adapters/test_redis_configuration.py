"""Configurations and pins on a real Redis: round trips, odd neighbours, a server that is down."""

from __future__ import annotations

import time
from functools import partial

import pytest
import redis
from tests.contracts.configuration import (
    ConfigurationStoreContract,
    PinStoreContract,
    act,
    draft,
)
from tools.tcp_proxy import unused_port

from angzarr.adapters.redis.configuration import RedisConfigurationStore, RedisPinStore
from angzarr.adapters.redis.link import RedisClient
from angzarr.configuration.pins import PIN_LIFE
from angzarr.errors import StoreUnavailable


class CountingClient(RedisClient):
    trips = 0

    def _call(self, send, *what):
        self.trips += 1
        return super()._call(send, *what)


@pytest.fixture
def client(redis_url):
    client = CountingClient(redis_url)
    yield client
    client.close()


@pytest.fixture
def direct(redis_url):
    with redis.Redis.from_url(redis_url) as direct:
        yield direct


class TestRedisConfigurationStore(ConfigurationStoreContract):
    @pytest.fixture
    def store(self, client, unique_name):
        return RedisConfigurationStore(client, prefix=unique_name)

    def test_each_verb_is_one_round_trip(self, store, client, id):
        for verb in (
            lambda: store.put(draft(id)),
            lambda: store.get(id, "1"),
            lambda: store.current(id),
            lambda: store.choose(id, "1", act()),
            lambda: store.versions(id),
            lambda: store.choices(id),
            store.ids,
        ):
            before = client.trips
            verb()
            assert client.trips == before + 1

    def test_every_key_is_in_one_slot_and_none_ends_by_itself(self, store, direct, unique_name, id):
        store.put(draft(id))
        names = sorted(direct.scan_iter(f"{unique_name}:*", count=1000))
        assert len(names) == 4
        assert all(name.startswith(f"{unique_name}:{{config}}:".encode()) for name in names)
        assert [direct.pttl(name) for name in names] == [-1] * 4

    @pytest.mark.parametrize("said", [b"{", b"[]", b"1 {}", b"1 null", b"x {}"])
    def test_what_others_wrote_there_counts_as_absent(self, store, direct, unique_name, id, said):
        first = store.put(draft(id)).version
        base = f"{unique_name}:{{config}}:"
        for version in (b"odd", b" "):
            direct.hset(f"{base}said:{id}", version, said)
            direct.hset(f"{base}body:{id}", version, said)
        direct.rpush(f"{base}current:{id}", said)
        assert store.get(id, "odd") is None
        assert store.versions(id) == [first.info]
        assert [one.version for one in store.choices(id)] == ["1"]


class TestRedisPinStore(PinStoreContract):
    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def make_pins(self, client, unique_name):
        return partial(RedisPinStore, client, prefix=unique_name)

    def test_they_are_one_key_and_one_round_trip(self, pins, client, direct, unique_name, key):
        before = client.trips
        pins.keep(key, {"pricing": "1", "tax": "2"})
        assert client.trips == before + 1
        (name,) = direct.scan_iter(f"{unique_name}:*", count=1000)
        assert name == f"{unique_name}:pins:{key}".encode()
        assert 0 < direct.pttl(name) <= PIN_LIFE.total_seconds() * 1000


def test_a_server_that_is_down_is_unavailable():
    client = RedisClient(f"redis://127.0.0.1:{unused_port()}")
    store, pins = RedisConfigurationStore(client), RedisPinStore(client)
    for verb in (
        lambda: store.get("a", "1"),
        lambda: store.current("a"),
        lambda: store.put(draft("a")),
        lambda: store.choose("a", "1", act()),
        lambda: store.versions("a"),
        lambda: store.choices("a"),
        store.ids,
        lambda: pins.keep("k", {"a": "1"}),
        lambda: pins.read("k"),
    ):
        with pytest.raises(StoreUnavailable):
            verb()
