"""A result backend elsewhere that is away: broker and claims are one Redis and are there.

A result that cannot be stored is lost, its event is not: handled once, and its slot is free soon.
"""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from polling import wait_until


@pytest.fixture
def away(make_site, cable, redis_url):
    """A site whose workers have a result backend, the cable to it, and its URL."""

    def make(**environment):
        proxy, backend = cable(redis_url)
        return make_site(broker=redis_url, **environment), proxy, backend

    return make


def publish(site, *numbers):
    for n in numbers:
        site.app.publish(site.module.Thing(n=n), id=f"{site.module.PREFIX}-{n}")


def run_out(site, last):
    """Let a worker do what is left, *last* at the end, and return how often each was handled."""
    publish(site, last)
    with site.worker("--concurrency", "1"):
        wait_until(lambda: last in runs(site), "the last event to be handled")
    return runs(site)


def runs(site):
    return Counter(line["n"] for line in site.ran("handled"))


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_an_event_whose_result_cannot_be_stored_is_not_handled_again(away, pool):
    """The grace is shorter than a mute result backend is waited for."""
    site, proxy, backend = away(ROAD_GRACE="1")
    with site.worker(pool=pool, ROAD_BACKEND=backend) as first:
        publish(site, 0)
        site.wait_ran("handled", 1)
        proxy.stall()
        publish(site, 1)
        site.wait_ran("handled", 2)
        first.send_signal(signal.SIGTERM)
        first.wait(60)
    proxy.mend()
    assert run_out(site, 2) == dict.fromkeys(range(3), 1)
    assert '"outcome":"duplicate"' in site.text(), "it was given back"


@pytest.mark.parametrize("how", ["stall", "cut"])
def test_a_result_backend_that_is_away_holds_no_slot_for_long_and_ends_with_its_worker(away, how):
    site, proxy, backend = away()
    with site.worker("--concurrency", "1", ROAD_BACKEND=backend) as only:
        publish(site, 0)
        site.wait_ran("handled", 1)
        getattr(proxy, how)()
        publish(site, 1, 2)
        site.wait_ran("handled", 3)  # the first waits 6 s for the result backend, not 240
        only.send_signal(signal.SIGTERM)
        only.wait(60)
        assert only.returncode == 0
    proxy.mend()
    assert run_out(site, 3) == dict.fromkeys(range(4), 1)
