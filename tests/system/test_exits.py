"""No silent exit (D7): whatever comes in is handled, comes again, or is a letter with its bytes."""

from __future__ import annotations

import json
import struct
from collections import Counter

import amqp
import pytest
import redis

from angzarr.dead_letters.names import queue_name
from angzarr.events.headers import UNREAD, OwnHeaders
from endurance import each_once, soak
from polling import wait_until
from system.bad_messages import Bad, all_bad, good_headers

BROKERS = ["redis", "amqp"]
#: ``amqp`` has quorum queues.
EVERY_BROKER = ["redis", "amqp", "classic", "sqs"]
#: How a task ends its process; road_app.py knows them.
DEATHS = ["exit", "signal", "sys.exit"]
POOLS = ["prefork", "threads", "solo"]


def publish_raw(site, bad, **properties):
    """Publish *bad* as a publisher of any language could."""
    queue = site.app.amqp.queues[site.app.conf.task_default_queue]
    with site.app.connection_for_write() as connection:
        producer = connection.Producer(auto_declare=False)
        queue(connection.default_channel).declare()
        headers = dict(bad.headers)
        producer.publish(
            bad.body, exchange=queue.exchange, routing_key=queue.routing_key, headers=headers,
            content_type=bad.content_type, content_encoding=bad.content_encoding,
            **properties,
        )  # fmt: skip


@pytest.mark.parametrize(("site", "pool"), each_once(EVERY_BROKER, POOLS), indirect=["site"])
def test_every_malformed_message_is_a_letter_and_the_worker_goes_on(site, pool):
    bad = all_bad()
    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        for one in bad:
            publish_raw(site, one)
        site.module.add.delay(2, 3)
        site.wait_ran("add")
        letters = site.letters("unknown", len(bad))
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


@pytest.mark.parametrize(("site", "pool"), each_once(BROKERS, POOLS), indirect=["site"])
def test_what_is_nested_too_deep_for_a_child_is_a_letter_and_keeps_no_slot(site, pool):
    bad = [
        Bad(
            f"nested {depth} deep", b"[[" + b"[" * depth + b"]" * depth + b"], {}, {}]", "",
            headers=good_headers(task="road_app.routed"),
        )
        for depth in range(100, 850, 50)
    ]  # fmt: skip
    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        for one in bad:
            publish_raw(site, one)
        letters = site.letters("unknown", len(bad))
        site.module.add.delay(2, 3)
        site.wait_ran("add")
        assert worker.poll() is None
    assert {letter.message.body for letter in letters} == {one.body for one in bad}


@pytest.mark.parametrize("site", ["redis", "amqp", soak("classic"), "sqs"], indirect=True)
def test_what_kills_its_child_is_given_back_counted_and_ends_as_poison(site):
    """The kernel ends who has used up the memory by SIGKILL: to a worker they are the same."""
    with site.worker(ROAD_ASYNC="0"):
        sent = {site.app.send_task("road_app.dies", (how,)).id: how for how in DEATHS}
        for n in range(5):
            site.module.add.delay(n, n)
        site.wait_ran("add", 5)
        letters = site.letters("unknown", len(DEATHS))
        site.module.add.delay(9, 9)
        site.wait_ran("add", 6)
    assert {(letter.reason, letter.message.id) for letter in letters} == {
        ("poison", one) for one in sent
    }
    assert Counter(line["how"] for line in site.ran("dies")) == dict.fromkeys(DEATHS, 3)


@pytest.mark.parametrize(
    ("site", "pool"),
    [
        ("classic", "prefork"),
        ("redis", "threads"),
        ("amqp", "solo"),
        *(soak(broker, "prefork") for broker in ("redis", "amqp", "sqs")),
    ],
    indirect=["site"],
)
def test_a_handler_that_exits_needs_more_memory_or_answers_no_json_is_accounted_for(site, pool):
    """In threads and solo `sys.exit` ends no process, and is counted as if it had."""
    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        greedy = site.app.send_task("road_app.greedy")
        leaves = site.app.send_task("road_app.dies", ("sys.exit",))
        site.app.send_task("road_app.answers")
        letters = site.letters("unknown", 2)
        site.module.add.delay(9, 9)
        site.wait_ran("add")
        assert worker.poll() is None
    told = {letter.message.id: (letter.reason, letter.error_code) for letter in letters}
    assert told == {greedy.id: ("refused", "UNKNOWN"), leaves.id: ("poison", "POISON")}
    assert [len(site.ran(what)) for what in ("greedy", "answers", "dies")] == [1, 1, 3]


@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_a_domain_that_only_messages_name_gets_no_queue(site, unique_name):
    """Neither that of a task that nobody has, nor that of a message that is no task at all."""
    said = {"angzarr-domain": unique_name}
    with site.worker(pool="threads", ROAD_ASYNC="0"):
        site.app.send_task("gone.away", headers=OwnHeaders(said))
        publish_raw(site, Bad("foreign", b"{}", "FOREIGN_MESSAGE", headers=said))
        letters = site.letters("unknown", 2)
    assert {letter.error_code for letter in letters} == {"UNKNOWN_TASK", "FOREIGN_MESSAGE"}
    assert {letter.message.headers["angzarr-domain"] for letter in letters} == {unique_name}
    assert {letter.event.domain for letter in letters if letter.event} == {unique_name}
    with site.app.connection_for_read() as connection, pytest.raises(amqp.NotFound):
        connection.default_channel.queue_declare(queue_name(unique_name), passive=True)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_is_too_large_for_its_letter_waits_in_the_schedule(
    make_site, redis_url, sqs_endpoint, pool
):
    """An SQS queue takes 1 MiB; a letter says more than its message. Each slot gets one."""
    letters = json.dumps({"backend": "sqs", "aws_endpoint_url": sqs_endpoint})
    site, large = make_site(broker=redis_url, ROAD_DLQ=letters), "x" * 2**20
    schedule = f"{site.app.settings.prefix}:{{schedule}}"
    with redis.Redis.from_url(redis_url) as client, site.worker(pool=pool):
        for n, filler in enumerate((large, large, "")):
            site.app.publish(site.module.Thing(n=n, fate="give up", filler=filler))
        (letter,) = site.letters("thing")
        wait_until(lambda: client.zcard(f"{schedule}:due") == 2, "the large ones to be kept")
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        kept = client.hvals(f"{schedule}:messages")
    assert letter.event.data["n"] == 2
    assert [large.encode() in row for row in kept] == [True, True]
    assert "letter_too_large" in site.text()
    assert sorted(line["n"] for line in site.ran("handle")) == [0, 1, 2]


@pytest.mark.parametrize("site", ["redis", "amqp", soak("classic"), soak("sqs")], indirect=True)
def test_time_limits_are_retried_after_their_backoff_and_end_as_letters(site):
    with site.worker(ROAD_LIMITS="1", ROAD_ASYNC="0"):
        hard, soft = (site.app.send_task(f"road_app.{kind}") for kind in ("hard", "soft"))
        site.wait_ran("hard", 1)
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        letters = site.letters("unknown", 2)
        wait_until(lambda: hard.state == soft.state == "FAILURE", "the results to be told")
    told = {letter.message.id: letter for letter in letters}
    assert told.keys() == {hard.id, soft.id}
    assert {(one.reason, one.category, one.attempts) for one in letters} == {
        ("exhausted", "transient", 2)
    }
    assert told[hard.id].error_code == "TIME_LIMIT"
    assert [line["attempt"] for line in site.ran("hard")] == [1, 2]
    assert len(site.ran("soft")) == 2


#: Headers with a time in milliseconds where seconds are meant: RabbitMQ takes it, py-amqp cannot.
LATE = b"\x02atT" + struct.pack(">Q", 1_700_000_000_000)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_properties_that_cannot_be_read_end_no_worker(site, pool, monkeypatch):
    """Its task runs where text is no UTF-8; headers that cannot be read are kept in a letter."""
    frame = struct.pack(">HI", 0x2000, len(LATE)) + LATE
    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        good = Bad("", b"[[1, 2], {}, {}]", "", headers=good_headers())
        publish_raw(site, good, correlation_id=b"caf\xe9")
        with monkeypatch.context() as patched:
            patched.setattr(amqp.basic_message.Message, "_serialize_properties", lambda _: frame)
            publish_raw(site, good)
        site.module.add.delay(3, 4)
        site.wait_ran("add", 2)
        (letter,) = site.letters("unknown")
        assert worker.poll() is None
        assert site.text().count(" ready.") == 1, "on its first connection"
    assert sorted(line["args"] for line in site.ran("add")) == [[1, 2], [3, 4]]
    assert (letter.error_code, letter.message.body) == ("FOREIGN_MESSAGE", good.body)
    assert letter.message.headers[UNREAD] == LATE


#: What is no message of kombu's at all, put on an SQS queue by somebody else.
NO_ENVELOPES = {
    "no JSON": "hello",
    "JSON of others": '{"Records": [{"s3": 1}]}',
    "a list": "[1, 2]",
    "a number": "7",
    "null": "null",
    "properties are text": '{"properties": "x", "body": "x"}',
    "properties are null": '{"properties": null}',
    "no body": '{"properties": {"delivery_info": {}, "delivery_tag": "1"}}',
    "headers are a list": '{"properties": {"delivery_tag": "1"}, "headers": [1], "body": "e30="}',
    "body is bad base64": '{"properties": {"delivery_tag": "1", "body_encoding": "base64"},'
    ' "headers": {}, "body": "%%%"}',
    "delivery info is text": '{"properties": {"delivery_info": "x"}, "headers": {}, "body": ""}',
}


@pytest.mark.parametrize("pool", [soak("prefork"), "threads", soak("solo")])
@pytest.mark.parametrize("site", ["sqs"], indirect=True)
def test_what_is_no_envelope_on_sqs_is_a_letter_and_the_worker_goes_on(site, pool, sqs_endpoint):
    import boto3

    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        client = boto3.client("sqs", endpoint_url=sqs_endpoint)
        queue = client.get_queue_url(QueueName=site.module.PREFIX)["QueueUrl"]
        for body in NO_ENVELOPES.values():
            client.send_message(QueueUrl=queue, MessageBody=body)
        site.module.add.delay(2, 2)
        site.wait_ran("add", 2)
        letters = site.letters("unknown", len(NO_ENVELOPES))
        assert worker.poll() is None
        assert site.text().count(" ready.") == 1
    assert sorted(letter.message.body.decode() for letter in letters) == sorted(
        NO_ENVELOPES.values()
    )


@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_what_rabbitmq_gave_up_becomes_a_letter_of_the_next_worker(site):
    site.module.add.delay(2, 3)
    queue = site.app.conf.task_default_queue
    with site.app.connection_for_read() as connection:
        message = connection.default_channel.basic_get(queue)
        connection.default_channel.basic_reject(message.delivery_tag, requeue=False)
    with site.worker() as worker:
        (letter,) = site.letters("unknown", 1)
        assert worker.poll() is None
    assert letter.handler == site.module.add.name
    assert letter.message.body.startswith(b"[[2, 3]")
    assert (letter.message.queue, letter.error_code) == (queue, "RABBITMQ_REJECTED")
    assert site.ran("add") == []


@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_a_queue_that_exists_otherwise_ends_the_worker_with_one_sentence(site):
    name = site.app.conf.task_default_queue
    with site.app.connection_for_write() as connection:
        connection.default_channel.queue_declare(name, durable=True, auto_delete=False)
    with pytest.raises(pytest.fail.Exception, match="the worker ended with 1"), site.worker():
        pass
    said = site.text()
    assert "Error: angzarr refuses to start, RabbitMQ has queues with other arguments" in said
    assert f"{name!r} (PRECONDITION_FAILED" in said
    assert "Traceback" not in said
