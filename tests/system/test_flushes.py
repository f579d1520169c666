"""A Redis that forgets: as the claim store it costs repeated work, as the broker it costs messages.

Decisions 18: said in docs/guarantees.md, shown here.
"""

from __future__ import annotations

import pytest

from redis_servers import PrivateRedis
from system.conftest import wait_for

EVENTS = 60


@pytest.fixture
def forgetful(tmp_path):
    with PrivateRedis(tmp_path / "redis") as server:
        yield server


def publish(site, numbers):
    for n in numbers:
        event = site.module.Thing(n=n, fate="slow", seconds=0.05)
        site.app.publish(event, id=f"{site.module.PREFIX}-{n}")


def handled(site):
    return [line["n"] for line in site.ran("handled")]


@pytest.mark.parametrize("how", ["flush", "restart"])
def test_a_claim_store_that_forgets_everything_loses_no_event(make_site, forgetful, how):
    site = make_site(store=forgetful.url)
    with site.worker() as worker:
        publish(site, range(EVENTS))
        wait_for(lambda: len(handled(site)) >= 10, what="ten events handled")
        if how == "flush":
            forgetful.client().flushall()
        else:
            forgetful.restart()  # it comes back empty, scripts forgotten too
        wait_for(lambda: len(set(handled(site))) == EVENTS, 60, "every event to be handled")
        assert worker.poll() is None
    assert set(handled(site)) == set(range(EVENTS)), "it may repeat, it loses nothing"


def test_a_broker_that_forgets_everything_has_lost_what_waited_and_the_worker_goes_on(
    make_site, forgetful
):
    site = make_site(broker=forgetful.url, store=forgetful.url)
    with site.worker() as worker:
        publish(site, range(EVENTS))
        wait_for(lambda: len(handled(site)) >= 10, what="ten events handled")
        forgetful.client().flushall()
        publish(site, range(EVENTS, EVENTS + 10))
        new = set(range(EVENTS, EVENTS + 10))
        wait_for(lambda: new <= set(handled(site)), 60, "what is published afterwards")
        assert worker.poll() is None
    assert len(set(handled(site))) < EVENTS + 10, (
        "Redis as a broker is as durable as it is told to be"
    )
