"""SQS as a broker: what is given back is the message itself, and what is no envelope is foreign."""

from __future__ import annotations

import json
import os

import pytest

from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.envelope import Envelope
from angzarr.adapters.celery.worker.message_limits import as_a_whole, check_fields
from angzarr.events.received import UNREADABLE, DamagedEnvelope
from polling import wait_until

pytestmark = pytest.mark.server("localstack")


@pytest.fixture
def connection(sqs_endpoint):
    address = sqs_endpoint.removeprefix("http://")
    options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}
    url = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"
    with AngzarrConnection(url, transport_options=options) as connection:
        yield connection


@pytest.fixture
def queue(connection, unique_name):
    simple = connection.SimpleQueue(unique_name)
    yield simple
    simple.close()


def raw_size(connection, name):
    """Return how many messages are visible, and how many somebody holds."""
    channel = connection.default_channel
    told = channel.sqs().get_queue_attributes(
        QueueUrl=channel._new_queue(name),
        AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    )["Attributes"]
    return tuple(int(value) for _, value in sorted(told.items()))


def test_a_message_given_back_is_there_at_once_and_once_only(connection, queue, unique_name):
    queue.put({"n": 1})
    first = queue.get(timeout=60)
    assert raw_size(connection, unique_name) == (0, 1)
    first.requeue()
    again = queue.get(timeout=60)
    assert again.payload == {"n": 1}
    assert raw_size(connection, unique_name) == (0, 1), "no copy, and the original is the one"
    again.ack()
    assert raw_size(connection, unique_name) == (0, 0)


def test_a_channel_that_closes_gives_back_what_it_holds(connection, queue, unique_name):
    queue.put({"n": 1})
    queue.get(timeout=60)
    connection.default_channel.close()
    with connection.clone() as other:
        wait_until(lambda: raw_size(other, unique_name) == (1, 0), "it to be back")


@pytest.mark.parametrize("body", ["hello", '{"a": 1}', "[1]", '{"properties": 7}', "aGVsbG8="])
def test_what_is_no_envelope_comes_as_it_is_with_the_name_of_its_queue(
    connection, queue, unique_name, body
):
    channel = connection.default_channel
    channel.sqs().send_message(QueueUrl=channel._new_queue(unique_name), MessageBody=body)
    message = next(_messages(queue))
    assert message.body == body.encode()
    assert message.headers == {}
    assert message.delivery_info["routing_key"] == unique_name
    message.ack()


@pytest.mark.parametrize(
    ("field", "value"),
    [("priority", "high"), ("priority", {}), ("correlation_id", 5), ("delivery_mode", [])],
)
def test_a_damaged_envelope_comes_as_it_is_and_says_what_is_wrong(
    connection, queue, unique_name, field, value
):
    channel = connection.default_channel
    envelope = {
        "body": "e30=", "headers": {}, "content-type": "application/json",
        "content-encoding": "utf-8",
        "properties": {
            "body_encoding": "base64", "delivery_tag": "t", field: value,
            "delivery_info": {"exchange": "", "routing_key": "q"},
        },
    }  # fmt: skip
    text = json.dumps(envelope)
    channel.sqs().send_message(QueueUrl=channel._new_queue(unique_name), MessageBody=text)
    message = next(_messages(queue))
    assert (message.body, message.headers) == (text.encode(), {})
    assert field in message.properties[UNREADABLE]
    with pytest.raises(DamagedEnvelope, match=field):
        check_fields(message)
    assert as_a_whole(message, Envelope("", "", b"", "", "", {}, {}, {})).body == text.encode()
    message.ack()


def test_an_envelope_of_too_many_values_comes_as_it_is(connection, queue, unique_name):
    channel = connection.default_channel
    text = '{"properties": {}, "headers": [' + "[]," * 20_000 + "[]]}"
    channel.sqs().send_message(QueueUrl=channel._new_queue(unique_name), MessageBody=text)
    message = next(_messages(queue))
    assert message.body == text.encode()
    assert "too many values" in message.properties[UNREADABLE]
    message.ack()


def test_what_was_given_back_comes_redelivered(queue):
    queue.put({"n": 1})
    first = next(_messages(queue))
    assert first.delivery_info["redelivered"] is False
    first.requeue()
    again = next(_messages(queue))
    assert again.delivery_info["redelivered"] is True
    again.ack()


def _messages(queue):
    """Yield what arrives undecoded, which a SimpleQueue would decode."""
    queue.consumer.on_message = queue.buffer.append
    yield queue.get(timeout=60)
