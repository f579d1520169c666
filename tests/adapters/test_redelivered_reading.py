"""What a real broker delivers once more is made a message by whoever counts its readers' deaths."""

from __future__ import annotations

import os
import zlib
from contextlib import contextmanager, suppress

import pytest
from kombu import Exchange, Queue

from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.worker.message_receiver import NamingConsumer, consumed_from
from polling import wait_until

BODY = {"n": 1, "text": "x" * 1000}


@pytest.fixture(
    params=[
        pytest.param("quorum", marks=pytest.mark.server("rabbitmq")),
        pytest.param("classic", marks=pytest.mark.server("rabbitmq")),
        pytest.param("sqs", marks=pytest.mark.server("localstack")),
    ]
)
def broker(request, unique_name):
    """Return how to connect, and the queue."""
    if request.param == "sqs":
        address = request.getfixturevalue("sqs_endpoint").removeprefix("http://")
        url = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"
        options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}
        return lambda: AngzarrConnection(url, transport_options=options), Queue(unique_name)
    url = request.getfixturevalue("amqp_url")
    arguments = {"x-queue-type": request.param}
    queue = Queue(unique_name, Exchange(""), unique_name, queue_arguments=arguments)
    return lambda: AngzarrConnection(url), queue


@pytest.fixture
def publish(broker):
    connect, queue = broker
    with connect() as connection:
        queue(connection.channel()).declare()

        def send(body=BODY, **options):
            producer = connection.Producer()
            producer.publish(
                body, exchange="", routing_key=queue.name, compression="zlib",
                headers={"task": "t"}, declare=[queue], **options,
            )  # fmt: skip

        yield send
        if connection.transport_cls != "sqs":
            queue(connection.channel()).delete()


class Reader:
    """Consumes as a worker does; *read* makes messages of what comes once more."""

    def __init__(self, connection, queue, read):
        self.connection, self.taken = connection, []
        consumer = NamingConsumer(
            connection.channel(), [queue], reread=read, on_message=self.taken.append,
            accept=["json"], prefetch_count=10, on_decode_error=lambda message, error: None,
        )  # fmt: skip
        consumer.consume()

    def wait(self, count=1):
        def came():
            with suppress(TimeoutError):
                self.connection.drain_events(timeout=1)
            return len(self.taken) >= count

        wait_until(came, "messages", 60)
        return self.taken


@contextmanager
def reading(broker, read):
    connect, queue = broker
    with connect() as connection:
        yield Reader(connection, queue, read)


def never(*_given):
    pytest.fail("it was never delivered before")


def test_a_first_delivery_is_read_as_ever(broker, publish):
    publish()
    with reading(broker, never) as reader:
        (message,) = reader.wait()
        assert message.payload == BODY
        message.ack()


def test_what_comes_once_more_is_made_by_the_one_who_counts(broker, publish):
    """Its name is the same each time, whether it was given back or its reader ended."""
    publish()
    names, told = [], []
    with reading(broker, never) as reader:
        reader.wait()  # and its connection ends with the message in hand

    def read(queue, identity, make, keep_packed):
        names.append((queue, identity))
        told.append(keep_packed())
        return make()

    with reading(broker, read) as reader:
        (message,) = reader.wait()
        assert (message.payload, consumed_from(message)) == (BODY, broker[1].name)
        message.requeue()
    with reading(broker, read) as reader:
        publish({"n": 2})
        reader.wait(2)
        assert sorted(message.payload["n"] for message in reader.taken) == [1, 2]
        for message in reader.taken:
            message.ack()
    assert len(set(names)) == 1
    assert names[0][0] == broker[1].name
    for packed in told:
        assert packed.headers["compression"] == "application/x-gzip"
        assert packed.headers["task"] == "t"
        assert b'"n": 1' in zlib.decompress(packed.body)
        assert packed.delivery_tag


def test_what_is_kept_as_it_came_can_be_acknowledged(broker, publish):
    publish()
    with reading(broker, never) as reader:
        reader.wait()  # and its connection ends with the message in hand
    with reading(broker, lambda _queue, _identity, _make, keep_packed: keep_packed()) as reader:
        (message,) = reader.wait()
        assert not message.errors
        assert b'"n": 1' in zlib.decompress(message.body)
        message.ack()
    publish({"n": 2})
    with reading(broker, lambda _queue, _identity, make, _keep_packed: make()) as reader:
        (message,) = reader.wait()
        assert message.payload == {"n": 2}
        message.ack()
