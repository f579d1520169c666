"""A Redis that forgets: as the claim store it costs repeated work, as the broker or the schedule
it costs messages. One that fails over costs time, once its replica has what was written.

Decisions 18: said in docs/guarantees.md, shown here.
"""

from __future__ import annotations

import time

import pytest

from redis_servers import LOOPBACK, PrivateRedis, wait_until

EVENTS = 40


@pytest.fixture
def forgetful(tmp_path):
    with PrivateRedis(tmp_path / "redis") as server:
        yield server


def publish(site, numbers):
    for n in numbers:
        event = site.module.Thing(n=n, fate="slow", seconds=0.2)
        site.app.publish(event, id=f"{site.module.PREFIX}-{n}")


def handled(site):
    return [line["n"] for line in site.ran("handled")]


@pytest.mark.parametrize("how", ["flush", "restart"])
def test_a_claim_store_that_forgets_everything_loses_no_event(make_site, forgetful, how):
    site = make_site(store=forgetful.url)
    with site.worker() as worker:
        publish(site, range(EVENTS))
        wait_until(lambda: len(handled(site)) >= 10, "ten events handled")
        if how == "flush":
            forgetful.client().flushall()
        else:
            forgetful.restart()  # it comes back empty, scripts forgotten too
        wait_until(lambda: len(set(handled(site))) == EVENTS, "every event to be handled")
        assert worker.poll() is None
    assert set(handled(site)) == set(range(EVENTS)), "it may repeat, it loses nothing"


def test_a_broker_that_forgets_everything_has_lost_what_waited_and_the_worker_goes_on(
    make_site, forgetful
):
    site = make_site(broker=forgetful.url, store=forgetful.url)
    with site.worker() as worker:
        publish(site, range(EVENTS))
        wait_until(lambda: len(handled(site)) >= 10, "ten events handled")
        forgetful.client().flushall()
        publish(site, range(EVENTS, EVENTS + 10))
        new = set(range(EVENTS, EVENTS + 10))
        wait_until(lambda: new <= set(handled(site)), "what is published afterwards")
        assert worker.poll() is None
    assert len(set(handled(site))) < EVENTS + 10, (
        "Redis as a broker is as durable as it is told to be"
    )


#: How long a retry waits, and how long it would take to be missed.
WAIT = 3.0
MISSED = WAIT + 2.5


def delay(site, n):
    """Have event *n* retried after WAIT, and return once its copy waits."""
    site.app.publish(
        site.module.Thing(n=n, fate="later", seconds=WAIT), id=f"{site.module.PREFIX}-{n}"
    )
    wait_until(lambda: "retrying_after_failure" in site.text(), "the retry to be settled")


def attempts(site, n):
    return [line["attempt"] for line in site.ran("handle") if line["n"] == n]


@pytest.mark.parametrize(
    ("queues", "found"), [("classic", [1]), ("quorum", [1, 2])], ids=["classic", "quorum"]
)
def test_a_schedule_that_forgets_everything_has_lost_the_retries_that_wait_in_it(
    make_site, forgetful, queues, found
):
    site = make_site(store=forgetful.url, ROAD_QUEUES=queues)
    with site.worker() as worker:
        delay(site, 0)
        forgetful.client().flushall()
        flushed = time.monotonic()
        publish(site, [1])
        wait_until(lambda: 1 in handled(site), "what is published afterwards")
        while time.monotonic() < flushed + MISSED and attempts(site, 0) != [1, 2]:
            time.sleep(0.05)
        assert attempts(site, 0) == found, "a quorum queue's retries wait in RabbitMQ, no others"
        assert worker.poll() is None


@pytest.mark.parametrize("broker", ["rabbitmq", "the same redis"])
def test_a_redis_that_fails_over_keeps_claims_and_what_waits_that_its_replica_has(
    make_site, cable, tmp_path, amqp_url, broker
):
    with (
        PrivateRedis(tmp_path / "a") as master,
        PrivateRedis(tmp_path / "b", replica_of=master) as replica,
    ):
        address, url = cable(master.url)
        site = make_site(
            broker=amqp_url if broker == "rabbitmq" else url, store=url, ROAD_QUEUES="classic"
        )
        with site.worker() as worker:
            publish(site, range(1, 10))
            wait_until(lambda: len(handled(site)) == 9, "nine events handled")
            delay(site, 0)
            wait_until(lambda: master.client().wait(1, 1000) == 1, "the replica to follow")
            master.kill()
            replica.client().replicaof("NO", "ONE")
            address.lead_to(LOOPBACK, replica.port)
            publish(site, range(1, 20))  # the first nine again
            wait_until(lambda: set(handled(site)) == set(range(20)), "every event to be handled")
            wait_until(lambda: site.text().count("duplicate") >= 9, "nine duplicates")
            assert worker.poll() is None
        assert sorted(handled(site)) == list(range(20)), "each once: the claims moved too"
        assert attempts(site, 0) == [1, 2]
