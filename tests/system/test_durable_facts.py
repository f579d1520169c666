"""Facts for SQL outlive any kill: a claim's ending keeps them, and a relay moves them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import contextmanager

import pytest

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.log import SqlFactLog
from polling import wait_until
from system.test_faults import handled, publish, wait_handled

KILLS = 4
EVENTS = 25


@pytest.fixture
def facts_url(tmp_path):
    return f"sqlite:///{tmp_path}/facts.db"


@contextmanager
def closing_log(url):
    engine = build_engine(url)
    yield SqlFactLog(engine)
    engine.dispose()


@pytest.fixture
def log(facts_url):
    with closing_log(facts_url) as log:
        yield log


def told(log, site, subtype="handled") -> Counter[int]:
    """How often the facts tell of each event that it ended so."""
    facts = log.read(subtype=subtype, limit=10_000)
    return Counter(int(fact.event_id.rpartition("-")[2]) for fact in facts)


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
@pytest.mark.parametrize("servers", ["one redis", "rabbitmq and redis", "rabbitmq and postgresql"])
def test_every_completed_event_has_its_fact_once_whoever_is_killed(
    make_site, redis_url, postgresql_url, log, facts_url, servers, pool
):
    place = {
        "one redis": {"broker": redis_url, "store": redis_url},
        "rabbitmq and redis": {},
        "rabbitmq and postgresql": {"store": postgresql_url},
    }[servers]
    site = make_site(**place, ANGZARR_FACTS__URL=facts_url)
    published = 0
    for _ in range(KILLS):
        with site.worker(pool=pool) as victim:
            publish(site, range(published, published + EVENTS), fate="slow", seconds=0.02)
            published += EVENTS
            wait_handled(site, published - EVENTS + 5)
            os.killpg(victim.pid, signal.SIGKILL)
    with site.worker(pool=pool):
        wait_until(lambda: set(range(published)) <= set(handled(site)), "all to be handled")
        wait_until(lambda: set(told(log, site)) == set(range(published)), "all facts to arrive")
    assert told(log, site) == Counter(range(published)), "each once"


def test_facts_wait_beside_the_claims_while_their_database_is_away(make_site, tmp_path):
    """No delivery waits for it, and a kill meanwhile loses none; what comes later moves them."""
    folder = tmp_path / "not yet"
    site = make_site(ANGZARR_FACTS__URL=f"sqlite:///{folder}/facts.db")
    with site.worker() as victim:
        publish(site, range(EVENTS), fate="slow", seconds=0.01)
        wait_handled(site, EVENTS)
        wait_until(lambda: "facts_delayed" in site.text(), "the relay to say why")
        os.killpg(victim.pid, signal.SIGKILL)
    folder.mkdir()
    with site.worker(), closing_log(f"sqlite:///{folder}/facts.db") as log:
        wait_until(lambda: set(told(log, site)) == set(range(EVENTS)), "all facts to arrive")
        assert told(log, site) == Counter(range(EVENTS))


def test_a_worker_that_ends_in_order_leaves_no_fact_behind(make_site, log, facts_url):
    site = make_site(ANGZARR_FACTS__URL=facts_url)
    with site.worker() as worker:
        publish(site, range(EVENTS), fate="slow", seconds=0.001)
        wait_handled(site, EVENTS)
        worker.terminate()
        worker.wait(60)
    assert told(log, site) == Counter(range(EVENTS))
