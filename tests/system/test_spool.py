"""A dead-letter queue that is away costs no slot: letters wait on the disk, and are forwarded."""

from __future__ import annotations

import json
import os
import signal

import redis

from angzarr.adapters.files.spool import FolderOfLetters
from polling import wait_until


def held(url: str) -> int:
    """Return how many messages are delivered and not acknowledged."""
    with redis.Redis.from_url(url) as client:
        return sum(client.hlen(key) for key in client.scan_iter("unacked:*", _type="hash"))


def test_letters_outlive_their_queues_outage_and_their_worker_in_the_spool(
    make_site, redis_url, amqp_url, cable, tmp_path
):
    """Acknowledged with their letters in the spool, forwarded once and in order when it is back."""
    proxy, by_way = cable(amqp_url)
    folder = FolderOfLetters(tmp_path / "spool")
    site = make_site(
        broker=redis_url,
        ROAD_DLQ=json.dumps({
            "targets": ["amqp", "spool"],
            "amqp_url": by_way,
            "spool": {"path": str(tmp_path / "spool"), "durable": True},
        }),
    )  # fmt: skip
    site.forget_letters("thing")

    def spool(*numbers):
        for count, n in enumerate(numbers, start=1):
            site.app.publish(site.module.Thing(n=n, fate="give up"), id=f"e-{n}")
            wait_until(lambda c=count: len(folder.waiting()) == c, f"letter {n} in the spool")
        wait_until(lambda: held(redis_url) == 0, "all messages to be acknowledged")

    def forwarded(*numbers):
        proxy.mend()
        wait_until(lambda: not folder.waiting(), "the spool to be empty")
        letters = site.letters("thing", len(numbers))
        assert [letter.event.id for letter in letters] == [f"e-{n}" for n in numbers]

    with site.worker() as process:
        proxy.cut()
        spool(1, 2, 3)
        assert "dead_letters_fall_back" in site.text()
        forwarded(1, 2, 3)
        wait_until(lambda: "spool_forwarded: 3 dead letters" in site.text(), "its line")
        proxy.cut()
        spool(4, 5)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with site.worker():
        forwarded(4, 5)
    assert [line["n"] for line in site.ran("handle")] == [1, 2, 3, 4, 5]
    assert folder.tally() == (0, 0, None, 0, 0)
