"""An app on a Redis broker: damaged envelopes, batches of claims, what a worker shows of itself."""

from __future__ import annotations

import pytest
import redis

from angzarr.dead_letters.letter import Reason
from polling import wait_until


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_damaged_envelope_is_a_letter_with_its_bytes_and_the_worker_goes_on(
    site, redis_url, pool
):
    with redis.Redis.from_url(redis_url) as client, site.worker(pool=pool):
        client.lpush(site.module.PREFIX, b"\xff{not json", b"[]", b'{"properties": {}}')
        site.app.publish(site.module.Thing(n=1))
        site.wait_ran("handle")
        letters = site.letters("unknown", 3)
        assert {letter.message.body for letter in letters} == {
            b"\xff{not json", b"[]", b'{"properties": {}}',
        }  # fmt: skip
        assert {letter.reason for letter in letters} == {Reason.UNDELIVERABLE}
        assert client.llen(site.module.PREFIX) == 0


def test_claims_and_completions_ride_and_nothing_is_left_behind(site, redis_url, unique_name):
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        with site.worker(pool="prefork"):
            for n in range(40):
                site.app.publish(site.module.Thing(n=n), id=f"{unique_name}-{n}")
            site.wait_ran("handle", 40)
            site.app.publish(site.module.Thing(n=0), id=f"{unique_name}-0")
            site.app.publish(site.module.Thing(n=99), id=f"{unique_name}-99")
            site.wait_ran("handle", 41)
            site.wait_ran("handle_async", 41)  # a stopping worker gives back what it did not begin
        assert sorted(line["n"] for line in site.ran("handle")) == [*range(40), 99]
        records = [client.hgetall(key) for key in client.scan_iter(f"*idempotency*{unique_name}*")]
        assert {record["status"] for record in records} == {"completed"}
        # No claim was counted as a start: all were made with their fetch.
        assert {record["starts"] for record in records} == {"0"}
        assert list(client.scan_iter("unacked:*#*")) == []


def test_inspect_stats_is_answered(site):
    with site.worker(pool="solo"):
        told = wait_until(site.app.control.inspect(timeout=5, limit=1).stats, "the answer")
    (stats,) = told.values()
    assert stats["broker"]["transport"] == "redis"
