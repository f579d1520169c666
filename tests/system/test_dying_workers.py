"""Workers that die whole: of a task that shares their process, and of SIGKILL on SQS."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import redis

from system.conftest import wait_for

OTHERS = 20
#: Deaths after which the test gives up.
TOO_MANY = 6


def let_leases_end(site):
    """Let what dead workers claimed be taken over at once, and not after 8 s."""
    with redis.Redis.from_url(site.environment["ANGZARR_STORE"]) as client:
        for key in client.scan_iter("*owner:*", _type="string"):
            client.delete(key)


@pytest.mark.parametrize("pool", ["threads", "solo"])
@pytest.mark.parametrize(("site", "most"), [("redis", 4), ("amqp", 3)], indirect=["site"])
def test_what_kills_its_whole_worker_ends_as_poison_and_what_ran_beside_it_does_not(
    site, pool, most
):
    """One start more where claims ride: nobody is left to count the first."""
    pill = site.app.send_task("road_app.dies", (), {"after": 0.3}).id
    site.app.send_task("road_app.long", (0.6,))
    for n in range(OTHERS):
        site.module.add.delay(n, n)
    letters = survived(site, pool, lambda found: pill in found and others_handled(site))
    assert letters.keys() == {pill}
    assert letters[pill].reason == "poison"
    assert len(site.ran("dies")) == most
    assert Counter(line["args"][0] for line in site.ran("add")) == dict.fromkeys(range(OTHERS), 1)
    assert len(site.ran("long done")) == 1


def others_handled(site):
    return len(site.ran("add")) >= OTHERS and site.ran("long done")


def survived(site, pool, is_over):
    """Start a worker each time one dies, until *is_over* says so of the letters by task."""
    letters = {}
    with closing(site.app.open_dead_letter_queue()) as queue:
        for _ in range(TOO_MANY):
            with site.begun_worker(pool=pool, ROAD_ASYNC="0", ROAD_LEASE="1") as worker:
                while worker.poll() is None:
                    receipts = queue.receive(["unknown"], limit=10, wait=timedelta(seconds=0.2))
                    queue.done(receipts)
                    letters |= {one.letter.message.id: one.letter for one in receipts}
                    if is_over(letters):
                        return letters
            let_leases_end(site)
    pytest.fail(f"{TOO_MANY} workers died of it; letters of {list(letters)}")


@pytest.fixture
def sqs_site(make_site, sqs_endpoint):
    """A site on SQS that gives a message back when its worker has said nothing for 3 s."""
    at = urlsplit(sqs_endpoint).netloc
    broker = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{at}//"
    return make_site(broker=broker, ROAD_VISIBILITY="3")


def test_a_kill_minus_9_of_the_whole_worker_loses_nothing_on_sqs(sqs_site):
    site, cut = sqs_site, set()
    for turn, pool in enumerate(("prefork", "threads", "solo")):
        with site.worker(pool=pool) as victim:
            before = len(handled(site))
            for n in range(8 * turn, 8 * turn + 8):
                site.app.publish(site.module.Thing(n=n, fate="slow", seconds=0.4))
            wait_for(lambda least=before + 3: len(handled(site)) >= least and amid_a_run(site))
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait(10)
        cut |= running(site)
        let_leases_end(site)
    with site.worker():
        wait_for(lambda: len(handled(site)) == 24, 60, "everything to be handled")
    assert set(handled(site).values()) == {1}
    starts = Counter(line["n"] for line in site.ran("handle"))
    assert {n for n, times in starts.items() if times > 1} == cut, "nothing else ran again"
    assert cut


def handled(site):
    return Counter(line["n"] for line in site.ran("handled"))


def amid_a_run(site):
    """Whether one runs, and what was handled before has had the time to be written down."""
    return running(site) and time.time() - site.journal.stat().st_mtime > 0.1


def running(site):
    """What has begun and not ended; what was killed earlier is running for ever."""
    return {line["n"] for line in site.ran("handle")} - handled(site).keys()
