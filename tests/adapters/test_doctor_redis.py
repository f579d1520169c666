"""The doctor and real Redis servers: well kept, badly kept, forbidding, frozen and away."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.doctor.finding import Fix
from angzarr.doctor_probes import DoctorTarget
from angzarr.doctor_probes.run import apply_fix
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_text
from angzarr.fleet import Member
from apps import apps
from doctoring import examined, found, ids, stock_app, untold
from polling import wait_until

ACL = "~* &* +@all -config -info -time"


@pytest.fixture
def make_app(amqp_url):
    with apps(dlq={"backend": "amqp", "amqp_url": amqp_url}) as make:
        yield make


def test_a_server_that_keeps_what_it_is_given_is_well(make_redis, make_app):
    server = make_redis(durable=True, options={"maxmemory": "100mb"})
    report = examined(make_app(broker=server.url))
    assert {one for one in ids(report) if one.startswith("redis-")} == set()
    assert f"Redis at 127.0.0.1:{server.port}" in report.servers
    assert "server-away" not in ids(report)


def test_a_server_that_loses_messages_is_told_with_the_lines_of_its_file(make_redis, make_app):
    server = make_redis(options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    report = examined(make_app(broker=server.url))
    assert {"redis-evicts", "redis-not-persistent"} <= ids(report, "critical")
    (evicts,) = found(report, "redis-evicts")
    assert evicts.at == f"Redis at 127.0.0.1:{server.port}"
    assert evicts.change.startswith("redis.conf: maxmemory-policy noeviction")


def test_a_policy_that_nothing_sets_off_yet_is_a_warning(make_redis, make_app):
    server = make_redis(durable=True, options={"maxmemory-policy": "volatile-lru"})
    report = examined(make_app(broker=server.url))
    assert "redis-would-evict" in ids(report, "warning")
    assert "redis-evicts" not in ids(report)


def test_a_full_server_and_one_whose_power_cut_costs_are_told(make_redis, make_app):
    options = {"maxmemory": "1mb", "appendfsync": "everysec"}
    server = make_redis(durable=True, options=options)
    report = examined(make_app(broker=server.url))
    assert {"redis-full", "redis-fsync"} <= ids(report)


def test_a_replica_takes_no_messages_and_its_master_loses_by_failover(make_redis, make_app):
    master = make_redis(durable=True)
    replica = make_redis(replica_of=master)
    report = examined(make_app(broker=replica.url))
    assert "redis-replica" in ids(report, "error")
    wait_until(lambda: found(examined(make_app(broker=master.url)), "redis-failover"), "it is told")
    master.client().config_set("min-replicas-to-write", 1)
    assert "redis-failover" not in ids(examined(make_app(broker=master.url)))


def test_a_cluster_cannot_be_the_broker(make_redis, make_app):
    server = make_redis(cluster=True, durable=True)
    assert "redis-unfit" in ids(examined(make_app(broker=server.url)), "error")


def test_what_may_not_be_asked_is_unknown_and_no_alarm(make_redis, make_app):
    """A managed Redis forbids CONFIG; an ACL may forbid INFO as well."""
    server = make_redis(durable=True, users=[f"user jo on >secret {ACL}"])
    url = server.url_for(user="jo", password="secret")
    report = examined(make_app(broker=url))
    assert {"redis-evicts", "redis-not-persistent"} <= untold(report)
    assert "server-away" not in ids(report)
    assert not {one for one in ids(report) if one.startswith("redis-")}


def test_a_server_that_hides_its_configuration_gets_no_fix_that_would_fail(make_redis, make_app):
    server = make_redis(users=["user jo on >secret ~* &* +@all -config"])
    (told,) = found(
        examined(make_app(broker=server.url_for(user="jo", password="secret"))),
        "redis-not-persistent",
    )
    assert (told.severity, told.fix) == ("warning", None)


def test_a_wrong_password_is_one_finding_that_does_not_repeat_it(make_redis, make_app):
    server = make_redis(durable=True, users=["user jo on >secret ~* &* +@all"])
    report = examined(make_app(broker=server.url_for(user="jo", password="hunter2")))
    at = f"Redis at 127.0.0.1:{server.port}"
    assert at in {one.at for one in found(report, "server-away")}
    assert "hunter2" not in repr(report)


def test_a_server_that_is_away_is_one_finding_and_the_rest_is_looked_at(make_redis, make_app):
    server = make_redis()
    url = server.url
    server.kill()
    report = examined(make_app(broker=url))
    (away,) = found(report, "server-away")
    assert away.at == f"Redis at 127.0.0.1:{server.port}", "it is the store and the fleet's as well"
    assert any(one.startswith("RabbitMQ at ") for one in report.servers)
    assert "dead-letter-queue-missing" in ids(report)


def test_a_frozen_server_holds_nobody_up(make_redis, make_app):
    server = make_redis()
    app = make_app(broker=server.url)
    server.pause()
    began = time.monotonic()
    report = examined(app, timeout=timedelta(seconds=1))
    assert "server-away" in ids(report, "error")
    assert time.monotonic() - began < 60


def test_a_store_of_its_own_is_looked_at_and_flow_stores_lose_no_messages(make_redis, make_app):
    broker, store, flow = make_redis(durable=True), make_redis(), make_redis()
    app = make_app(broker=broker.url, store=store.url, flow={"store": flow.url})
    severities = {one.at: one.severity for one in found(examined(app), "redis-not-persistent")}
    assert severities == {
        f"Redis at 127.0.0.1:{store.port}": "critical",
        f"Redis at 127.0.0.1:{flow.port}": "warning",
    }


def test_what_workers_hold_beyond_the_visibility_timeout_is_found(make_redis):
    """As kombu's transport keeps what a worker holds for later."""
    server = make_redis(durable=True)
    with stock_app(server.url) as app:
        for number, hours in enumerate((0.5, 2, 3)):
            eta = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
            message = json.dumps([{"headers": {"eta": eta}, "body": ""}, "celery", "celery"])
            server.client().hset("unacked", f"tag{number}", message)
            server.client().zadd("unacked_index", {f"tag{number}": time.time()})
        server.client().hset("unacked", "odd", b"\xff[")
        server.client().zadd("unacked_index", {"odd": time.time()})
        (told,) = found(examined(app), "redis-delays-beyond-visibility")
        assert told.seen.startswith("2 messages are held")
        longer = {"visibility_timeout": 4 * 3600}
        app.conf.broker_transport_options = longer
        assert not found(examined(app), "redis-delays-beyond-visibility")


def test_keys_that_are_not_what_they_should_be_hide_nothing(make_redis):
    """Whoever may write to the broker must not blind who looks at it."""
    server = make_redis()
    client = server.client()
    with stock_app(server.url) as app:
        client.zadd("unacked_index", {b"\xff\xfe\x1b[31m": 1.0, "a": float("inf")})
        client.set("unacked", "no hash")
        assert_only_persistence_is_found(app)
        client.delete("unacked_index", "unacked")
        client.set("unacked_index", "no set")
        assert_only_persistence_is_found(app)
        client.delete("unacked_index")
        client.zadd("unacked_index", {"a": 1.0})
        client.set("unacked", "no hash")
        assert_only_persistence_is_found(app)


def assert_only_persistence_is_found(app):
    report = examined(app)
    assert {one for one in ids(report) if one.startswith("redis-")} == {"redis-not-persistent"}
    assert not {"server-away", "look-failed"} & ids(report)


def test_queues_that_are_none_hide_no_fleet(make_redis, make_app):
    server = make_redis(durable=True)
    app = make_app(broker=server.url)
    app._parts.claims.leases.renew("web:1", timedelta(minutes=5))
    enter(app, queues=("other",), release="")
    server.client().set(app.conf.task_default_queue, b"\xff")
    told = ids(examined(app))
    assert "release-unnamed" in told
    assert not {"server-away", "look-failed"} & told


def test_messages_that_no_worker_of_the_fleet_reads_are_found(make_redis, make_app):
    server = make_redis(durable=True)
    app = make_app(broker=server.url)
    app._parts.claims.leases.renew("web:1", timedelta(minutes=5))
    enter(app, queues=("other",))
    server.client().lpush(app.conf.task_default_queue, b"{}", b"{}")
    (told,) = found(examined(app), "queue-unread")
    assert told.seen.startswith("2 messages")
    enter(app, queues=(app.conf.task_default_queue,))
    assert not found(examined(app), "queue-unread")


def enter(app, *, queues, release="v1"):
    app.ops.fleet().register(
        Member(
            owner="web:1", host="web", pid=1, release=release, queues=queues,
            handlers=(), started_at=datetime.now(UTC),
        )
    )  # fmt: skip


def test_releases_side_by_side_are_found(make_redis, make_app):
    server = make_redis(durable=True)
    app = make_app(broker=server.url)
    assert "no-workers" in ids(examined(app))
    for owner, release in (("web:1", "v1"), ("web:2", "v2")):
        app._parts.claims.leases.renew(owner, timedelta(minutes=5))
        app.ops.fleet().register(
            Member(owner=owner, host="w", pid=1, release=release, started_at=datetime.now(UTC))
        )
    told = ids(examined(app))
    assert "release-skew" in told
    assert "no-workers" not in told


def test_facts_that_no_worker_moves_are_found(make_redis, make_app):
    server = make_redis(durable=True)
    app = make_app(broker=server.url)
    now = datetime.now(UTC)
    fact = Fact(id="f1", type="lifecycle", subtype="claim_lost", at=now - timedelta(minutes=1))
    app.ops.fact_outbox().put([fact_text(fact)])
    assert not found(examined(app), "facts-waiting")
    app.ops.fact_outbox().remove([app.ops.fact_outbox().read(1)[0].place])
    app.ops.fact_outbox().put([fact_text(replace(fact, at=now - timedelta(minutes=9)))])
    (told,) = found(examined(app), "facts-waiting")
    assert told.seen == "the oldest has waited for 9 min"


# -- what it mends -----------------------------------------------------------------------------


def fixes(app, *checks) -> list[Fix]:
    return [one.fix for one in examined(app).findings if one.check.id in checks and one.fix]


def test_a_fix_is_in_force_and_written_down(make_redis, make_app):
    server = make_redis(options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    app = make_app(broker=server.url)
    server.client().set("kept", "yes")
    made = fixes(app, "redis-evicts", "redis-not-persistent")
    assert [apply_fix(DoctorTarget(app=app), fix) for fix in made] == ["", ""]
    assert not {"redis-evicts", "redis-not-persistent"} & ids(examined(app))
    written = (server.folder / "redis.conf").read_text()
    assert "appendonly yes" in written
    assert "maxmemory-policy noeviction" in written
    assert server.client().get("kept") == b"yes"


def test_what_cannot_be_written_down_is_left_to_a_person(make_redis, make_app):
    server = make_redis(users=["user jo on >secret ~* &* +@all -config|rewrite"])
    app = make_app(broker=server.url_for(user="jo", password="secret"))
    (fix,) = fixes(app, "redis-not-persistent")
    assert "write 'appendonly yes' into its redis.conf" in apply_fix(DoctorTarget(app=app), fix)
    assert server.client(decode_responses=True).config_get("appendonly") == {"appendonly": "yes"}
