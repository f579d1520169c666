"""The fleet on a real Redis: one round trip a verb, nothing left behind, odd neighbours."""

from __future__ import annotations

import time
from functools import partial

import pytest
import redis
from tests.contracts.fleet import LONG, FleetContract, member
from tools.tcp_proxy import unused_port

from angzarr.adapters.redis.fleet import RedisFleet
from angzarr.adapters.redis.idempotency import RedisOwnerLeases
from angzarr.adapters.redis.link import RedisClient
from angzarr.errors import StoreUnavailable
from angzarr.fleet import RELEASE_LIFE, SAID_LIFE


@pytest.fixture
def client(redis_url):
    client = RedisClient(redis_url)
    yield client
    client.close()


@pytest.fixture
def direct(redis_url):
    with redis.Redis.from_url(redis_url) as direct:
        yield direct


class TestRedisFleet(FleetContract):
    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def leases(self, client, unique_name):
        return RedisOwnerLeases(client, prefix=unique_name)

    @pytest.fixture
    def make_fleet(self, client, unique_name):
        return partial(RedisFleet, client, prefix=unique_name)

    def test_every_key_of_it_is_in_one_slot_and_ends_by_itself(self, enter, direct, unique_name):
        enter(member("a", "v1"))
        tag = f"{unique_name}:{{fleet}}:".encode()
        names = sorted(direct.scan_iter(f"{unique_name}:*fleet*", count=1000))
        assert names == [tag + part for part in (b"first_seen", b"last_seen", b"said", b"said_at")]
        longest = {b"first_seen": RELEASE_LIFE, b"last_seen": RELEASE_LIFE}
        for name in names:
            life = longest.get(name.removeprefix(tag), SAID_LIFE)
            assert 0 < direct.pttl(name) <= 2 * life.total_seconds() * 1000

    @pytest.mark.parametrize("said", [b"\xff\xfe", b"{", b"[]", b'{"owner": "b"}', b"null"])
    def test_what_others_wrote_there_hides_nobody(
        self, enter, fleet, leases, direct, unique_name, said
    ):
        enter(member("a", "v1"))
        leases.renew("b", LONG)
        base = f"{unique_name}:{{fleet}}:"
        for owner in (b"b", b"\xff"):
            direct.hset(base + "said", owner, said)
        for name in (said, b'"', b"\xff"):
            direct.zadd(base + "first_seen", {name: 1e18})
        assert list(fleet.members()) == [member("a", "v1")]
        assert [one.name for one in fleet.releases()] == ["v1"]


class CountingClient(RedisClient):
    trips = 0

    def _call(self, send, *what):
        self.trips += 1
        return super()._call(send, *what)


def test_to_register_is_one_round_trip_and_to_ask_is_two(redis_url, unique_name):
    client = CountingClient(redis_url)
    fleet = RedisFleet(client, prefix=unique_name)
    leases = RedisOwnerLeases(client, prefix=unique_name)

    def trips(step):
        before = client.trips
        step()
        return client.trips - before

    assert trips(fleet.members) == 1
    for owner in "abc":
        leases.renew(owner, LONG)
        assert trips(lambda: fleet.register(member(owner, "v1"))) == 1  # noqa: B023 - called at once
    assert trips(fleet.members) == 2
    assert trips(fleet.releases) == 1
    client.close()


def test_a_server_that_is_down_is_unavailable():
    fleet = RedisFleet(RedisClient(f"redis://127.0.0.1:{unused_port()}"))
    for verb in (lambda: fleet.register(member("a")), fleet.members, fleet.releases):
        with pytest.raises(StoreUnavailable):
            verb()
