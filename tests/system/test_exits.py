"""No silent exit (D7): whatever comes in is handled, comes again, or is a letter with its bytes."""

from __future__ import annotations

import uuid

import pytest

from system.bad_messages import Bad, all_bad, good_headers
from system.conftest import wait_for

BROKERS = ["redis", "amqp"]
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


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("site", ["redis", "amqp", "classic", "sqs"], indirect=True)
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


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("site", BROKERS, indirect=True)
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


@pytest.mark.parametrize(
    ("site", "how"),
    [("redis", "exit"), ("redis", "signal"), ("redis", "sys.exit"), ("amqp", "signal"),
     ("classic", "exit"), ("sqs", "signal")],
    indirect=["site"],
)  # fmt: skip
def test_what_kills_its_child_is_given_back_counted_and_ends_as_poison(site, how):
    with site.worker(ROAD_LIMITS="1", ROAD_ASYNC="0"):
        sent = site.app.send_task("road_app.dies", (how,))
        for n in range(5):
            site.module.add.delay(n, n)
        site.wait_ran("add", 5, seconds=10)
        (letter,) = site.letters("unknown", seconds=60)
        site.module.add.delay(9, 9)
        site.wait_ran("add", 6)
    assert (letter.reason, letter.message.id) == ("poison", sent.id)
    assert len(site.ran("dies")) == 3


@pytest.mark.parametrize("site", ["redis", "amqp", "sqs"], indirect=True)
def test_a_hard_time_limit_is_retried_after_its_backoff_and_ends_as_a_letter(site):
    with site.worker(ROAD_LIMITS="1", ROAD_ASYNC="0"):
        sent = site.app.send_task("road_app.hard")
        site.wait_ran("hard", 1)
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        (letter,) = site.letters("unknown", seconds=60)
    assert (letter.reason, letter.error_code, letter.attempts) == ("exhausted", "TIME_LIMIT", 2)
    assert letter.message.id == sent.id
    assert [line["attempt"] for line in site.ran("hard")] == [1, 2]
    wait_for(lambda: sent.state == "FAILURE", what="the result to be told")


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("site", BROKERS, indirect=True)
def test_a_revoked_task_is_a_letter_and_does_not_run(site, pool):
    with site.worker(pool=pool, ROAD_ASYNC="0"):
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        task_id = str(uuid.uuid4())
        wait_for(
            lambda: site.app.control.revoke(task_id, reply=True, timeout=2), what="the revocation"
        )
        sent = site.module.add.apply_async((2, 2), task_id=task_id)
        (letter,) = site.letters("unknown")
        wait_for(lambda: sent.state == "REVOKED", what="the result to be told")
    assert (letter.reason, letter.message.id, letter.attempts) == ("revoked", task_id, 0)
    assert len(site.ran("add")) == 1


@pytest.mark.parametrize("site", BROKERS, indirect=True)
def test_a_task_revoked_while_it_runs_is_killed_and_a_letter(site):
    with site.worker(ROAD_LIMITS="1", ROAD_ASYNC="0"):
        sent = site.app.send_task("road_app.long", (30,))
        site.wait_ran("long")
        site.app.control.revoke(sent.id, terminate=True, signal="SIGKILL")
        (letter,) = site.letters("unknown")
        site.module.add.delay(1, 1)
        site.wait_ran("add")
    assert (letter.reason, letter.message.id) == ("revoked", sent.id)
    assert len(site.ran("long")) == 1
    assert site.ran("long done") == []


@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_a_property_that_is_no_utf_8_ends_no_worker_and_its_task_runs(site):
    with site.worker(ROAD_ASYNC="0") as worker:
        good = Bad("", b"[[1, 2], {}, {}]", "", headers=good_headers())
        publish_raw(site, good, correlation_id=b"caf\xe9")
        site.module.add.delay(3, 4)
        site.wait_ran("add", 2)
        assert worker.poll() is None
    assert sorted(line["args"] for line in site.ran("add")) == [[1, 2], [3, 4]]


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


@pytest.mark.parametrize("pool", ["prefork", "solo"])
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
        letters = site.letters("unknown", len(NO_ENVELOPES), seconds=30)
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
