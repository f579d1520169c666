"""SQS as a broker: what is given back is the message itself, and what is no envelope is foreign."""

from __future__ import annotations

import os
import time

import pytest

from angzarr.adapters.celery.connection import RoadConnection

pytestmark = pytest.mark.server("localstack")


@pytest.fixture
def connection(sqs_endpoint):
    address = sqs_endpoint.removeprefix("http://")
    options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}
    url = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"
    with RoadConnection(url, transport_options=options) as connection:
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
    first = queue.get(timeout=10)
    assert raw_size(connection, unique_name) == (0, 1)
    first.requeue()
    again = queue.get(timeout=10)
    assert again.payload == {"n": 1}
    assert raw_size(connection, unique_name) == (0, 1), "no copy, and the original is the one"
    again.ack()
    assert raw_size(connection, unique_name) == (0, 0)


def test_a_channel_that_closes_gives_back_what_it_holds(connection, queue, unique_name):
    queue.put({"n": 1})
    queue.get(timeout=10)
    connection.default_channel.close()
    with connection.clone() as other:
        until = time.monotonic() + 10
        while raw_size(other, unique_name) != (1, 0):
            assert time.monotonic() < until
            time.sleep(0.1)


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


def _messages(queue):
    """Yield what arrives undecoded, which a SimpleQueue would decode."""
    queue.consumer.on_message = queue.buffer.append
    yield queue.get(timeout=10)
