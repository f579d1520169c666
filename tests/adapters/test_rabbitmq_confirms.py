"""Confirms are told apart: what went wrong with one publish is not the next one's."""

from __future__ import annotations

import uuid

import pytest
from amqp.exceptions import FrameSyntaxError, NotFound
from kombu import Connection, Queue

from angzarr.adapters.rabbitmq.transport import RabbitMQTransport

#: Seconds; a confirm that is mistaken never comes.
SOON = 3


@pytest.fixture
def connection(amqp_url):
    options = {"confirm_publish": True}
    with Connection(amqp_url, transport_options=options) as connection:
        connection.transport_cls = RabbitMQTransport
        yield connection


@pytest.fixture
def queue(connection):
    queue = Queue(f"confirms-{uuid.uuid4().hex}", durable=False, auto_delete=False)
    bound = queue(connection.default_channel)
    bound.declare()
    yield bound
    queue(connection.channel()).delete()


def publish(channel, queue, **options):
    producer = channel.connection.client.Producer(channel, auto_declare=False)
    producer.publish({}, routing_key=queue.name, mandatory=True, confirm_timeout=SOON, **options)


def test_what_cannot_be_written_leaves_the_next_publish_its_confirm(connection, queue):
    channel = connection.channel()
    publish(channel, queue)
    with pytest.raises(FrameSyntaxError):
        publish(channel, queue, headers={"no table": object()})
    publish(channel, queue)
    assert queue.queue_declare(passive=True).message_count == 2


def test_a_channel_that_rabbitmq_closed_is_confirmed_on_again(connection, queue):
    channel = connection.channel()
    publish(channel, queue)
    with pytest.raises(NotFound):
        publish(channel, queue, exchange=f"none-{uuid.uuid4().hex}")
    publish(channel, queue)
    assert queue.queue_declare(passive=True).message_count == 2


def test_who_wants_to_hear_that_rabbitmq_is_blocked_hears_it(amqp_url):
    heard = []
    with Connection(amqp_url, transport_options={"on_blocked": heard.append}) as connection:
        connection.transport_cls = RabbitMQTransport
        blocked = connection.connection
        blocked._on_blocked()
        assert (len(heard), blocked.blocked) == (1, True)
        blocked._on_unblocked()
        assert not blocked.blocked
