"""Real workers on our Redis transport, killed, frozen and stopped under load; Redis as well.

ANGZARR_KILLS says how often each is killed; a few suffice to notice what breaks.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter

import pytest
import redis

from endurance import longer, soak
from polling import PATIENCE, wait_until
from redis_servers import PrivateRedis
from system.conftest import Site
from system.killed_site import PREFETCH, SLOTS, KilledSite, signal_group

KILLS = int(os.environ.get("ANGZARR_KILLS", longer(3, 50)))
POOLS = ["prefork", "threads", "solo"]

pytestmark = [pytest.mark.longer, pytest.mark.timeout((KILLS + 1) * PATIENCE * 2)]


@pytest.fixture
def make_site(tmp_path):
    with contextlib.ExitStack() as stack:

        def make(*, lease: float) -> KilledSite:
            server = stack.enter_context(PrivateRedis(tmp_path / "redis", durable=True))
            site = KilledSite(tmp_path, server, lease=lease)
            stack.callback(site.app.close)
            return site

        yield make


# -- workers that are killed -----------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_sigkill_of_a_worker_under_load_loses_nothing(make_site, pool):
    site = make_site(lease=1.0)
    left = 0
    # A busy machine may have done the short ones as soon as they are published.
    long = 0.05 if pool == "solo" else 0.1
    with contextlib.ExitStack() as workers:
        (victim,) = workers.enter_context(site.workers(pool))
        for _ in range(KILLS):
            heir = workers.enter_context(site.begun_worker(pool))  # starts while the other works
            had = len(site.ended())
            site.publish(100, 0.01)
            site.publish(40, long)
            standing = site.publish_standing(SLOTS)  # a slow publisher finds the others done
            wait_until(lambda had=had: len(site.ended()) > had + 5, "the load to begin")
            time.sleep(random.random() * 0.2)
            signal_group(victim, signal.SIGKILL)
            victim.process.wait()
            left += site.held() > 0
            site.go_on()
            wait_until(lambda those=standing: set(those) <= site.ended(), "the heir to go on")
            victim = heir
        victim.wait_said(" ready.")
        site.wait_ended(site.confirmed, KILLS * PATIENCE)
    assert left > KILLS / 2, "too few held anything when they were killed: nothing was tried"
    assert len(site.twice()) <= KILLS * PREFETCH, "only what a victim held may run again"


# -- Redis is killed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "lease", "outage"),
    [
        ("prefork", 2.0, 0.3),
        soak("threads", 2.0, 0.3),
        soak("prefork", 1.0, 1.5),
        ("threads", 1.0, 1.5),
    ],
    ids=["prefork-shorter", "threads-shorter", "prefork-longer", "threads-longer"],
)
def test_sigkill_of_redis_under_load_loses_and_repeats_nothing(make_site, pool, lease, outage):
    """Whether the outage is shorter than the lease or longer."""
    site = make_site(lease=lease)
    with site.workers(pool, pool) as (one, other):
        for _ in range(KILLS):
            running = site.publish_standing(2)
            site.wait_begun(running)
            site.publish(60)
            time.sleep(random.random() * 0.1)
            site.server.kill()
            time.sleep(outage)
            site.server.start()
            site.publish(5)
            site.go_on()
            site.wait_ended(running)
        site.wait_ended(site.confirmed)
        said = one.text() + other.text()
    assert site.twice() == [], said[-3000:]
    assert "redis_back" in said
    assert "messages_given_back" not in said


# -- workers that stand still ----------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_frozen_beyond_its_lease_is_replaced_and_told_when_it_wakes(make_site, pool):
    site = make_site(lease=1.0)
    with site.workers(pool) as (frozen,):
        running = site.publish_standing(2)
        site.publish(20)
        site.wait_begun(running)
        signal_group(frozen, signal.SIGSTOP)
        held = site.held()
        site.go_on()
        with site.workers(pool) as (other,):
            site.wait_ended(site.confirmed)
            other.wait_said("messages_given_back")
            signal_group(frozen, signal.SIGCONT)
            frozen.wait_said("acknowledged_too_late")
            late = site.publish(10)
            site.wait_ended(late)
    assert 2 <= held <= PREFETCH
    assert set(running) <= set(site.twice())
    assert len(site.twice()) <= held, "only what it held when it was frozen may run again"


# -- workers that live -----------------------------------------------------------------------------


def test_a_task_longer_than_five_leases_runs_once_beside_an_idle_worker(make_site):
    site = make_site(lease=1.0)
    with contextlib.ExitStack() as workers:
        began = [workers.enter_context(site.begun_worker(pool, queues=pool)) for pool in POOLS]
        for worker in began:
            worker.wait_said(" ready.")
        long = [n for pool in POOLS for n in site.publish_standing(1, queue=pool)]
        site.wait_begun(long)
        (idle,) = workers.enter_context(site.workers("threads", queues=",".join(POOLS)))
        time.sleep(5.5 * site.lease)
        site.go_on()
        site.wait_ended(long)
        wait_until(lambda: site.held() == 0, "the acknowledgements")
        said = "".join(worker.text() for worker in (*began, idle))
    assert site.begun() == dict.fromkeys(long, 1)
    assert "given_back" not in said
    assert "too_late" not in said


def test_a_worker_started_on_a_full_server_frees_it(make_site):
    site = make_site(lease=1.0)
    with site.workers("threads"):
        site.wait_ended(site.publish(1))  # its queues are bound now
    waiting = site.publish(50)
    client = site.server.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", client.info("memory")["used_memory"] - 100_000)
    assert site.publish(1) == []  # it is full
    with site.workers("threads"):
        site.wait_ended(waiting)
    client.config_set("maxmemory", 0)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_sigterm_gives_back_what_has_not_begun_once_what_runs_has_ended(make_site, pool):
    """No lease is waited for: it would last longer than any wait here.

    Celery closes its consumer when its pool has ended, which alone takes it about 2 s (prefork).
    """
    site = make_site(lease=600.0)
    with site.workers(pool) as (stopped,):
        running = site.publish_standing(2)
        site.wait_begun(running)
        waiting = site.publish(PREFETCH - 2)
        wait_until(lambda: site.held() == PREFETCH, "it to prefetch")
        with site.workers("threads") as (other,):
            stopped.process.send_signal(signal.SIGTERM)
            stopped.wait_said("Warm shutdown")
            time.sleep(3)  # its loop ends after its present turn, of which nothing tells
            site.go_on()
            wait_until(lambda: set(running) <= site.ended(), "what runs to end")
            assert stopped.process.wait(PATIENCE) == 0
            site.wait_ended([*running, *waiting])
    assert site.twice() == []
    assert {run.worker for run in site.runs("begun") if run.n in waiting} == {other.name}


# -- an Angzarr app, whose claims lie on the same Redis --------------------------------------------


@pytest.fixture
def road(tmp_path, monkeypatch, unique_name, amqp_url):
    with PrivateRedis(tmp_path / "redis", durable=True) as server:
        environment = {
            "ROAD_PREFIX": unique_name,
            "ROAD_BROKER": server.url,
            "ANGZARR_STORE": server.url,
            "ROAD_DLQ": json.dumps({"backend": "amqp", "amqp_url": amqp_url}),
            "ROAD_ASYNC": "0",
        }
        site = Site(tmp_path, environment, monkeypatch)
        yield site
        site.close()


#: A lease of 2 s, so that others take over soon.
SOON = {"ROAD_LEASE": "2"}


def handled(site) -> Counter[int]:
    return Counter(line["n"] for line in site.ran("handled"))


def test_sigkill_of_an_angzarr_worker_handles_every_event_and_repeats_only_what_ran(road):
    published = 0
    for _ in range(KILLS):
        with road.worker(**SOON) as victim:
            before = len(handled(road))
            for n in range(published, published + 25):
                road.app.publish(road.module.Thing(n=n, fate="slow", seconds=0.03), id=f"e{n}")
            published += 25
            wait_until(lambda before=before: len(handled(road)) > before + 3, "the load to begin")
            time.sleep(random.random() * 0.1)
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
    with road.worker(**SOON):
        wait_until(lambda: set(handled(road)) == set(range(published)), "all to be handled")
    twice = [n for n, times in Counter(x["n"] for x in road.ran("handle")).items() if times > 1]
    assert len(twice) <= KILLS * SLOTS, "only what ran when its worker was killed may run again"


def test_a_frozen_angzarr_worker_whose_event_was_taken_over_is_fenced(road):
    with road.worker(**SOON) as frozen:
        road.app.publish(road.module.Thing(n=1, fate="slow", seconds=1.0), id="frozen")
        road.wait_ran("handle")
        os.killpg(frozen.pid, signal.SIGSTOP)
        try:
            with road.worker(**SOON):
                road.wait_ran("handled")
                assert "fenced" not in road.text()
                os.killpg(frozen.pid, signal.SIGCONT)
                road.wait_ran("handled", 2)
                wait_until(lambda: "fenced" in road.text(), "the late completion to be fenced")
        finally:
            os.killpg(frozen.pid, signal.SIGCONT)
    assert len({line["pid"] for line in road.ran("handled")}) == 2
    assert len(_completed(road)) == 1, "one claim, which the successor completed"


def test_a_worker_that_wakes_begins_nothing_that_others_took_over(road):
    """It had claimed with its fetch what was behind the two that it ran when it was frozen."""
    with road.worker("--prefetch-multiplier", "4", **SOON) as frozen:
        for n in range(6):
            fate = {"fate": "slow", "seconds": 1.0} if n < SLOTS else {}
            road.app.publish(road.module.Thing(n=n, **fate), id=f"frozen-{n}")
        road.wait_ran("handle", SLOTS)
        wait_until(lambda: road.text().count("] received") == 6, "all to be fetched")
        os.killpg(frozen.pid, signal.SIGSTOP)
        try:
            with road.worker(**SOON):
                wait_until(lambda: len(handled(road)) == 6, "the other to handle all")
                os.killpg(frozen.pid, signal.SIGCONT)
                road.wait_ran("handled", 6 + SLOTS)
                road.app.publish(road.module.Thing(n=9), id="at last")
                wait_until(lambda: 9 in handled(road), "what comes now")
                wait_until(lambda: "taken over" in road.text(), "it to find out")
        finally:
            os.killpg(frozen.pid, signal.SIGCONT)
    runs = Counter(line["n"] for line in road.ran("handle"))
    assert runs == {n: 2 if n < SLOTS else 1 for n in (*range(6), 9)}


def _completed(site) -> list[dict]:
    with redis.Redis.from_url(site.environment["ANGZARR_STORE"], decode_responses=True) as client:
        hashes = [client.hgetall(key) for key in client.scan_iter("*:idempotency:*", _type="hash")]
    return [claim for claim in hashes if claim.get("status") == "completed"]
