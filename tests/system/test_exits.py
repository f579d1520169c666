"""No silent exit (D7): whatever comes in is handled, comes again, or is a letter with its bytes."""

from __future__ import annotations

import pytest

from system.bad_messages import all_bad

BROKERS = ["redis", "amqp"]
POOLS = ["prefork", "threads", "solo"]


def publish_raw(site, bad):
    """Publish *bad* as a publisher of any language could."""
    queue = site.app.amqp.queues[site.app.conf.task_default_queue]
    with site.app.connection_for_write() as connection:
        producer = connection.Producer(auto_declare=False)
        queue(connection.default_channel).declare()
        headers = dict(bad.headers)
        producer.publish(
            bad.body, exchange=queue.exchange, routing_key=queue.routing_key, headers=headers,
            content_type=bad.content_type, content_encoding=bad.content_encoding,
        )  # fmt: skip


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("site", BROKERS, indirect=True)
def test_every_malformed_message_is_a_letter_and_the_worker_goes_on(site, pool):
    bad = all_bad()
    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        for one in bad:
            publish_raw(site, one)
        site.module.add.delay(2, 3)
        site.wait_ran("add")
        letters = site.letters("unknown", len(bad), seconds=30)
        assert worker.poll() is None, site.text()[-3000:]
        assert site.text().count(" ready.") == 1, "the worker never started anew"
    assert [line["args"] for line in site.ran("add")] == [[2, 3]], "nothing malformed ran"
    assert {(name_of(letter, bad), letter.error_code) for letter in letters} == {
        (one.name, one.code) for one in bad
    }


def name_of(letter, bad):
    """Return the name of the row that became *letter*, by its bytes and its headers."""
    (found,) = (
        one.name
        for one in bad
        if one.body == letter.message.body
        and one.headers.get("id") == letter.message.headers.get("id")
        and one.headers.get("timelimit") == letter.message.headers.get("timelimit")
    )
    return found
