from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
import redis
from tests.contracts.schedule import LONG, ScheduleContract, message

from angzarr.adapters.redis.link import RedisClient
from angzarr.adapters.redis.schedule import RedisSchedule
from angzarr.delivery.schedule import id_of
from angzarr.errors import StoreUnavailable
from redis_servers import PrivateRedis

QUICK = timedelta(milliseconds=300)


class SkewedClock:
    """A worker's clock that is an hour ahead of Redis's."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture
def client(redis_url):
    client = RedisClient(redis_url)
    yield client
    client.close()


class TestRedisSchedule(ScheduleContract):
    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.002)

    @pytest.fixture
    def pretend(self, direct, unique_name):
        def pretend(span):
            due = f"{unique_name}:{{schedule}}:due"
            for row in direct.zrange(due, 0, -1):
                direct.zincrby(due, -span.total_seconds() * 1000, row)

        return pretend

    @pytest.fixture
    def schedule(self, client, unique_name):
        return RedisSchedule(client, prefix=unique_name)


@pytest.fixture
def direct(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as direct:
        yield direct


@pytest.fixture
def schedule(client, unique_name):
    return RedisSchedule(client, prefix=unique_name)


def test_all_keys_share_one_hash_tag_and_none_is_left(schedule, direct, unique_name):
    schedule.put(message(), datetime.now(UTC))
    (row,) = schedule.take("token", 10, LONG).rows
    keys = set(direct.scan_iter(f"{unique_name}*"))
    base = f"{unique_name}:{{schedule}}"
    assert keys == {f"{base}:{part}" for part in ("due", "messages", "tokens", "taken:token")}
    schedule.done("token", [row.id])
    (left,) = direct.scan_iter(f"{unique_name}*")
    assert left == f"{base}:taken:token"
    assert 0 < direct.pttl(left) <= LONG.total_seconds() * 1000, "it ends with the lease"


def test_nothing_but_what_is_lent_ends_by_itself(schedule, direct, unique_name):
    schedule.put(message(), datetime.now(UTC) + timedelta(days=7))
    assert {direct.ttl(key) for key in direct.scan_iter(f"{unique_name}*")} == {-1}


def test_waits_are_measured_by_redis_and_not_by_a_workers_clock(client, unique_name):
    skewed = RedisSchedule(client, prefix=unique_name, clock=SkewedClock())
    skewed.put(message(), SkewedClock().now() + timedelta(minutes=1))
    next_in = skewed.take("a", 10, LONG).next_in
    assert timedelta(seconds=40) < next_in <= timedelta(minutes=1)


def test_a_row_whose_message_is_gone_is_told_as_empty_and_blocks_nothing(
    schedule, direct, unique_name
):
    schedule.put(message("m1"), datetime.now(UTC))
    schedule.put(message("m2"), datetime.now(UTC))
    direct.hdel(f"{unique_name}:{{schedule}}:messages", id_of(message("m1")))
    texts = {row.id: row.text for row in schedule.take("a", 10, LONG).rows}
    assert texts[id_of(message("m1"))] == ""
    assert texts[id_of(message("m2"))]


# -- faults ------------------------------------------------------------------------------------


@pytest.fixture
def through_proxy(proxy, unique_name):
    schedule = RedisSchedule(RedisClient(proxy.url, timeout=QUICK), prefix=unique_name)
    yield schedule
    schedule.close()


@pytest.mark.parametrize("cut", [True, False])
def test_a_put_whose_reply_was_lost_is_one_row_when_it_is_put_again(through_proxy, proxy, cut):
    now = datetime.now(UTC)
    proxy.lose_replies(b"EVAL", times=2, cut=cut)
    with pytest.raises(StoreUnavailable):
        through_proxy.put(message(), now)
    proxy.lose_replies(b"", times=0)
    through_proxy.put(message(), now)
    assert len(through_proxy.take("a", 10, LONG).rows) == 1


def test_a_take_whose_reply_was_lost_lends_the_same_rows_to_the_same_mover(through_proxy, proxy):
    through_proxy.put(message(), datetime.now(UTC))
    through_proxy.take("warm", 0, LONG)
    proxy.lose_replies(b"EVALSHA", times=2)
    with pytest.raises(StoreUnavailable):
        through_proxy.take("a", 10, LONG)
    proxy.lose_replies(b"", times=0)
    assert through_proxy.take("b", 10, LONG).rows == []
    assert len(through_proxy.take("a", 10, LONG).rows) == 1


def test_a_full_redis_still_moves_what_is_due_and_refuses_what_is_new(tmp_path):
    with PrivateRedis(tmp_path / "redis") as server:
        schedule = RedisSchedule(RedisClient(server.url))
        schedule.put(message("m1"), datetime.now(UTC))
        server.client().config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable):
            schedule.put(message("m2"), datetime.now(UTC))
        (row,) = schedule.take("a", 10, LONG).rows
        schedule.done("a", [row.id])
        assert schedule.take("b", 10, LONG).next_in is None
        schedule.close()


def test_what_waits_survives_a_restart_of_a_durable_redis(tmp_path):
    with PrivateRedis(tmp_path / "redis", durable=True) as server:
        schedule = RedisSchedule(RedisClient(server.url))
        schedule.put(message(), datetime.now(UTC))
        server.restart()
        assert len(schedule.take("a", 10, LONG).rows) == 1
        schedule.close()
