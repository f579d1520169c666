"""Workers that die whole: of a task that shares their process, and of SIGKILL on SQS."""

from __future__ import annotations

import json
import os
import signal
import zlib
from collections import Counter
from contextlib import closing
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import redis
from kombu import compression

from endurance import soak
from polling import wait_until
from system.kill_tale import Tale

OTHERS = 20
#: How bodies are packed that kill who unpacks them.
KILLER = "application/x-killer"
#: Deaths after which the test gives up.
TOO_MANY = 6


def let_leases_end(site):
    """Let what dead workers claimed be taken over at once, and not after 8 s."""
    with redis.Redis.from_url(site.environment["ANGZARR_STORE"]) as client:
        for key in client.scan_iter("*owner:*", _type="string"):
            client.delete(key)


@pytest.mark.parametrize(
    ("site", "most", "pool"),
    [
        ("redis", 4, "threads"),
        ("amqp", 4, "solo"),
        soak("redis", 4, "solo"),
        soak("amqp", 4, "threads"),
    ],
    indirect=["site"],
)
def test_what_kills_its_whole_worker_ends_as_poison_and_what_ran_beside_it_does_not(
    site, pool, most
):
    """One start more where claims ride: nobody is left to count the first."""
    check_poison(site, pool, most)


def check_poison(site, pool, most):
    pill = site.app.send_task("road_app.dies", (), {"after": 0.3}).id
    site.app.send_task("road_app.long", (0.6,))
    for n in range(OTHERS):
        site.module.add.delay(n, n)
    letters = survived(site, pool, lambda found: pill in found and others_handled(site))
    assert letters.keys() == {pill}
    assert letters[pill].reason == "poison"
    assert len(site.ran("dies")) == most
    times = added(site)
    if (pool, most) == ("solo", 4):  # what ended just before it was not acknowledged yet
        times = Counter(times.keys())
    assert times == dict.fromkeys(range(OTHERS), 1)
    assert len(site.ran("long done")) == 1


def others_handled(site):
    return len(added(site)) == OTHERS and site.ran("long done")


def added(site):
    """Return how often each number was added."""
    return Counter(line["args"][0] for line in site.ran("add"))


def survived(site, pool, is_over):
    """Start a worker each time one dies, until *is_over* says so of the letters by task."""
    letters = {}
    with closing(site.app.ops.open_dead_letter_queue()) as queue:
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


@pytest.fixture(params=["quorum", "classic", "sqs"])
def site_of_killers(request, make_site):
    """A site whose workers die where they unpack what is packed with "killer"."""
    if request.param == "sqs":
        site = request.getfixturevalue("sqs_site")
    else:
        site = make_site(ROAD_CLASSIC="1" if request.param == "classic" else "0")
    site.environment["ROAD_KILLER"] = "1"
    compression.register(zlib.compress, zlib.decompress, KILLER, ["killer"])
    yield site
    for known, name in (
        (compression._encoders, KILLER), (compression._decoders, KILLER),
        (compression._aliases, "killer"),
    ):  # fmt: skip
        del known[name]


def test_what_kills_its_readers_is_a_letter_with_its_bytes_and_all_others_are_handled(
    site_of_killers,
):
    site = site_of_killers
    for n in range(OTHERS // 2):
        site.module.add.delay(n, n)
    killer = site.app.send_task("road_app.add", (-1, -1), compression="killer").id
    for n in range(OTHERS // 2, OTHERS):
        site.module.add.delay(n, n)
    letters = survived(
        site, "threads", lambda found: killer in found and len(added(site)) == OTHERS
    )
    assert letters.keys() == {killer}
    letter = letters[killer]
    assert (letter.reason, letter.error_code) == ("undeliverable", "READERS_DIED")
    assert letter.handler == "road_app.add"
    assert json.loads(zlib.decompress(letter.message.body))[0] == [-1, -1]
    assert letter.message.headers["compression"] == KILLER
    assert set(added(site)) == set(range(OTHERS))


def test_what_kills_its_whole_worker_on_sqs_ends_as_poison(sqs_site):
    """One start more: what one answer of SQS brought is claimed together, and counts none."""
    check_poison(sqs_site, "threads", most=4)


#: Kills, each of a worker of another pool, and events that are published before each.
POOLS, EVENTS = ("prefork", "threads", "solo"), 8


def test_a_kill_minus_9_of_the_whole_worker_loses_nothing_on_sqs(sqs_site):
    """Every event is handled, run again only where a run of it was cut; one always cut is poison.

    Who is at work at a kill is chance: an event may be there all three times.
    """
    tale = Tale(sqs_site)
    for pool in POOLS:
        with tale.site.worker(pool=pool) as victim:
            before = len(tale.handled)
            tale.publish(EVENTS)
            wait_until(lambda least=before + 3: len(tale.handled) >= least and tale.at_work(), tale)
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait(60)
        tale.note_cut({victim.pid}, by="worker")
        let_leases_end(tale.site)
    with tale.site.worker():
        tale.finish()
    tale.check()
