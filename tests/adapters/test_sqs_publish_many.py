"""Many events on SQS: batches of ten, and an exact account of what SQS refused."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.apps import apps

from adapters.sqs_faults import Faults
from angzarr import Publication
from angzarr.errors import BrokerUnavailable
from angzarr.events import NotAllPublished
from angzarr.events import headers as names

pytestmark = pytest.mark.server("localstack")

TOO_LARGE = "x" * 900_000  # with its envelope


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch, operation="SendMessageBatch")


@pytest.fixture
def make_app(sqs_endpoint, unique_name):
    def prepare(app):
        app.conf.task_default_queue = f"{unique_name}-one"
        app.conf.broker_transport_options = {
            "region": "us-east-1", "is_secure": False, "wait_time_seconds": 0,
            "queue_name_prefix": "",
            "client-config": {"retries": {"total_max_attempts": 1}},
        }  # fmt: skip
        app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}
        app.handler("placed", name="one")(ignore)

    address = sqs_endpoint.removeprefix("http://")
    url = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"
    with apps(
        prepare, broker=url, store="memory://", dlq={"backend": "none", "accept_loss": True}
    ) as make:
        yield make


@pytest.fixture
def app(faults, make_app):
    return make_app()


@pytest.fixture
def fan_out(app, unique_name):
    app.handler("placed", name="two", queue=f"{unique_name}-two")(ignore)
    return app


def ignore(event):
    """Handle it."""


def events(count, **large):
    return [
        Publication({"n": n, "text": large.get(f"e{n}", "")}, type="placed", id=f"e-{n}")
        for n in range(count)
    ]


def take(app, queue=None):
    """Take what waits in *queue*."""
    found = []
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        while message := channel.basic_get(queue or app.conf.task_default_queue):
            found.append(channel.message_to_python(message))
            channel.basic_ack(message.delivery_tag)
    return found


def ids(messages):
    return [message.headers[names.EVENT_ID] for message in messages]


def numbers(part):
    return [event.data["n"] for event in part]


def test_all_arrive_once_in_each_handlers_queue_ten_a_request(fan_out, faults, unique_name):
    published = fan_out.publish_many(events(25))
    wanted = [event.id for event in published]
    assert sorted(ids(take(fan_out))) == sorted(wanted)
    assert sorted(ids(take(fan_out, f"{unique_name}-two"))) == sorted(wanted)
    assert (faults.asked["SendMessageBatch"], faults.asked["SendMessage"]) == (6, 0)


def test_a_message_of_many_is_that_of_publish(app):
    said = {"type": "placed", "id": "e-1", "root": "r-1"}
    app.publish({"n": ["ü"]}, **said, DelaySeconds=0)
    app.publish_many([Publication({"n": ["ü"]}, **said)] * 2, DelaySeconds=0)
    one, *many = take(app)
    for other in many:
        assert other.payload == one.payload
        apart = {names.OCCURRED_AT}
        assert {k: v for k, v in other.headers.items() if k not in apart} == {
            k: v for k, v in one.headers.items() if k not in apart
        }
        assert (other.content_type, other.content_encoding) == (
            one.content_type, one.content_encoding,
        )  # fmt: skip


def test_what_coroutines_publish_side_by_side_arrives_once(app):
    async def main():
        each = [app.apublish({"n": n}, type="placed", id=f"e-{n}") for n in range(50)]
        await asyncio.gather(*each, app.apublish_many(events(70)[50:]))

    asyncio.run(main())
    assert sorted(ids(take(app))) == sorted(f"e-{n}" for n in range(70))


def test_large_events_go_in_batches_that_every_queue_takes(app, faults):
    text = "x" * 60_000
    app.publish_many(events(10, **{f"e{n}": text for n in range(10)}))
    assert len(take(app)) == 10
    assert faults.asked["SendMessageBatch"] >= 3, "a batch has 256 KiB at most"


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestThrottled", "AccessDenied"])
def test_what_sqs_refuses_half_way_is_accounted_for(fan_out, faults, code):
    fan_out.publish_many(events(1))
    faults.code, faults.after = code, 3
    with pytest.raises(NotAllPublished, match=code) as caught:
        fan_out.publish_many(events(12), retry=False)
    error = caught.value
    assert numbers(error.confirmed) == list(range(10))
    assert numbers(error.uncertain) == [10, 11], "one of their two handlers has them"
    assert error.reasons["e-11"].refused is (code == "AccessDenied")
    assert error.reasons.keys() == {"e-10", "e-11"}
    faults.code = None
    fan_out.publish_many(error.unconfirmed)
    assert set(ids(take(fan_out))) == {f"e-{n}" for n in range(12)}


def test_a_service_that_failed_amid_its_work_leaves_a_batch_uncertain(app, faults):
    app.publish_many(events(1))
    faults.code, faults.after = "ServiceUnavailable", 1
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(events(30), retry=False)
    error = caught.value
    assert numbers(error.confirmed) == list(range(10))
    assert numbers(error.uncertain) == list(range(10, 20))
    assert numbers(error.unsent) == list(range(20, 30))


def test_what_a_throttled_service_did_not_take_is_sent_again(app, faults):
    app.publish_many(events(1))
    take(app)
    faults.code, faults.times = "RequestThrottled", 1
    app.publish_many(events(30))
    assert sorted(ids(take(app))) == sorted(f"e-{n}" for n in range(30))


def test_sqs_is_not_even_asked_for(app, faults):
    faults.code, faults.operation = "ExpiredToken", "ListQueues"
    with pytest.raises(BrokerUnavailable, match=r"none of 2 events was sent.*ExpiredToken"):
        app.publish_many(events(2))


def test_one_that_is_too_large_costs_the_others_nothing_and_says_why(app):
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(events(8, e3=TOO_LARGE))
    error = caught.value
    assert (numbers(error.unsent), error.uncertain) == ([3], ())
    assert error.reasons.keys() == {"e-3"}
    assert error.reasons["e-3"].refused
    assert not error.reasons["e-3"].passing
    assert sorted(ids(take(app))) == sorted(event.id for event in error.confirmed)


def test_a_queue_that_was_deleted_is_created_again(app):
    app.publish_many(events(1))
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.sqs().delete_queue(QueueUrl=channel._new_queue(app.conf.task_default_queue))
    app.publish_many(events(12))
    assert sorted(ids(take(app))) == sorted(f"e-{n}" for n in range(12))


def test_a_queue_that_is_not_among_the_predefined_is_refused_and_no_other(fan_out):
    queue = fan_out.conf.task_default_queue
    with fan_out.connection_for_write() as connection:
        url = connection.default_channel._new_queue(queue)
    options = {**fan_out.conf.broker_transport_options, "predefined_queues": {queue: {"url": url}}}
    fan_out.conf.broker_transport_options = options
    with pytest.raises(NotAllPublished) as caught:
        fan_out.publish_many(events(3))
    assert caught.value.missing == ("two",)
    assert numbers(caught.value.uncertain) == [0, 1, 2]
    assert all(reason.refused for reason in caught.value.reasons.values())
    assert sorted(ids(take(fan_out))) == ["e-0", "e-1", "e-2"]


def test_a_fifo_queue_keeps_the_order_of_a_group(app, unique_name):
    app.publish_many(events(25), queue=f"{unique_name}.fifo", MessageGroupId="r-1")
    assert ids(take(app, f"{unique_name}.fifo")) == [f"e-{n}" for n in range(25)]


def test_what_no_queue_takes_is_an_error(app):
    with pytest.raises(BrokerUnavailable, match="no queue takes 'nobody'"):
        app.publish_many(
            events(2), exchange="amq.topic", routing_key="nobody", exchange_type="topic"
        )
