"""Publishing to a real RabbitMQ: what no queue takes is an error, or finds its queue after all."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from kombu.common import Broadcast
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

from angzarr import Angzarr
from angzarr.adapters.celery.publish.publisher import CelerySchedule
from angzarr.clock import SystemClock
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names
from angzarr.events.event import Message
from redis_servers import wait_until


@pytest.fixture
def app(amqp_url, unique_name):
    app = Angzarr("shop", broker=amqp_url, store="redis://127.0.0.1:1")
    app.conf.task_default_queue = unique_name

    @app.handler("placed", name="one")
    def one(event):
        """Handle it."""

    yield app
    app.close()


def publish(app, number, **options):
    app.publish({"n": number}, type="placed", id=f"e-{number}", **options)


def apply(app, number, **options):
    app.tasks["one"].apply_async(({"n": number},), task_id=f"e-{number}", **options)


def message(app, number):
    return Message(
        body=b"[[], {}, {}]", content_type="application/json", content_encoding="utf-8",
        headers={"id": f"e-{number}", "task": "one"}, queue=app.conf.task_default_queue,
    )  # fmt: skip


def copy(app, number):
    app.ops.open_publisher().publish(message(app, number))


each_way = pytest.mark.parametrize("send", [publish, apply, copy])


def delete(app, name=None):
    """Delete a queue behind the back of whoever thinks that it is declared."""
    with app.connection_for_write() as connection:
        connection.default_channel.queue_delete(name or app.conf.task_default_queue)


def take(app, name=None):
    """Take every message that waits, and return the event ids."""
    found = []
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        while message := channel.basic_get(name or app.conf.task_default_queue, no_ack=True):
            headers = channel.message_to_python(message).headers
            found.append(headers.get(names.EVENT_ID) or headers["id"])
    return found


@each_way
def test_a_message_whose_queue_was_deleted_finds_it_declared_again(app, send):
    send(app, 1)
    for number in range(2, 5):
        delete(app)
        send(app, number)
        assert take(app) == [f"e-{number}"]


@pytest.mark.parametrize("send", [publish, apply])
def test_a_message_that_no_queue_takes_is_an_error_that_names_it(app, send):
    way = {"exchange": "amq.topic", "routing_key": "nobody", "exchange_type": "topic"}
    with pytest.raises(BrokerUnavailable, match="no queue takes 'nobody' at the exchange"):
        send(app, 1, **way)
    with pytest.raises(BrokerUnavailable, match="no queue takes 'nobody'"):
        send(app, 2, **way, retry=False)
    send(app, 3)
    assert take(app) == ["e-3"], "the confirm of what came back is no other message's"


def test_without_retries_the_next_message_declares_the_queue_again(app):
    publish(app, 1)
    delete(app)
    with pytest.raises(BrokerUnavailable, match="no queue takes"):
        publish(app, 2, retry=False)
    publish(app, 3, retry=False)
    assert take(app) == ["e-3"]


def test_what_was_returned_may_be_sent_unflagged_by_who_wants_it(app):
    app.send_task("one", exchange="amq.topic", routing_key="nobody", mandatory=False)


def test_a_broadcast_without_a_listener_is_no_error(app, unique_name):
    app.amqp.queues.add(Broadcast(f"{unique_name}-all"))
    exchange = app.amqp.queues[f"{unique_name}-all"].exchange
    with app.connection_for_write() as connection:
        exchange(connection.default_channel).declare()
    app.send_task("one", queue=app.amqp.queues[f"{unique_name}-all"])


def test_a_delayed_message_whose_queue_is_gone_waits_until_it_is_back(app):
    queue = app.amqp.queues[app.conf.task_default_queue]
    with app.connection_for_write() as connection:
        declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")

        def declare():
            channel = connection.default_channel
            bound = queue(channel)
            bound.declare()
            bind_queue_to_native_delayed_delivery_exchange(connection, bound)

        declare()
        publish(app, 1, countdown=1)
        apply(app, 2, countdown=1)
        delete(app)
        wait_until(lambda: waiting(connection, "celery_delayed_0") == 0, "the end of the delay")
        time.sleep(0.5)  # RabbitMQ tries to bring them to a queue that is not there
        declare()
        wait_until(lambda: waiting(connection, queue.name) == 2, "the messages")
    assert sorted(take(app)) == ["e-1", "e-2"]


def test_a_delay_of_a_week_waits_that_long_level_by_level_and_ends_in_its_own_queue(app):
    queue, clock, week = app.amqp.queues[app.conf.task_default_queue], SystemClock(), 7 * 86_400
    with app.connection_for_write() as connection:
        # RabbitMQ refuses these if its queues have other times to live.
        declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")
        channel = connection.default_channel
        bound = queue(channel)
        bound.declare()
        bind_queue_to_native_delayed_delivery_exchange(connection, bound)
        schedule = CelerySchedule(
            app, app.ops.open_publisher(), lambda: pytest.fail("a row"), clock
        )
        schedule.put(message(app, 1), clock.now() + timedelta(seconds=week))
        waited = 0
        for level in range(27, -1, -1):
            if found := channel.basic_get(level_name(level), no_ack=True):
                waited += 2**level
                # As RabbitMQ does when it has waited there.
                onward = level_name(level - 1) if level else "celery_delayed_delivery"
                key = found.delivery_info["routing_key"]
                channel.basic_publish(found, exchange=onward, routing_key=key)
    assert waited == week
    assert take(app) == ["e-1"]


def waiting(connection, queue):
    """Return how many messages wait in *queue*, those that go nowhere included."""
    return connection.default_channel.queue_declare(queue, passive=True).message_count
