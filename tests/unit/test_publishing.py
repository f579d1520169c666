"""Publishing: one message for each handler, and the flow that an event belongs to."""

from __future__ import annotations

import json

import pytest
from celery import Celery
from pydantic import BaseModel

from angzarr import Angzarr, Priority
from angzarr.delivery.context import RUNNING
from angzarr.delivery.delivery import read
from angzarr.events import headers as names
from angzarr.events.event import task_id_for
from angzarr.events.message import Message


class Placed(BaseModel):
    order_id: str


def first(event):
    pass


def second(event):
    pass


@pytest.fixture
def app():
    app = Angzarr(
        "shop",
        broker="memory://",
        store="memory://",
        routes={"Placed": [{"handler": "crm.sync", "queue": "crm"}]},
    )
    app.handler(Placed, name="one", domain="order")(first)
    app.handler(Placed, name="two", queue="slow")(second)
    yield app
    app.close()


@pytest.fixture
def sent(app):
    def take(queue):
        with app.connection_for_read() as connection:
            simple = connection.SimpleQueue(queue)
            messages = []
            while simple.qsize():
                messages.append(simple.get_nowait())
                messages[-1].ack()
            simple.close()
            return messages

    for queue in ("celery", "slow", "crm"):
        take(queue)
    return take


def test_every_handler_gets_a_message_of_its_own_in_its_queue(app, sent):
    event = app.publish(Placed(order_id="o-1"), root="o-1", priority="realtime")
    (one,), (two,), (crm,) = sent("celery"), sent("slow"), sent("crm")
    assert [m.headers["task"] for m in (one, two, crm)] == ["one", "two", "crm.sync"]
    assert one.headers["id"] == task_id_for(event.id, "one")
    assert json.loads(one.body)[0] == [{"order_id": "o-1"}]
    assert one.headers[names.EVENT_ID] == event.id
    assert one.headers[names.ROOT] == "o-1"
    assert one.headers[names.PRIORITY] == Priority.REALTIME
    assert (one.headers[names.QUEUE], two.headers[names.QUEUE]) == ("celery", "slow")
    assert one.headers[names.DOMAIN] == "order", "the handler's domain stands in"
    assert names.DOMAIN not in two.headers


def test_a_handlers_own_event_continues_the_flow(app):
    outer = app.publish(Placed(order_id="o-1"))
    message = Message(
        body=b"", content_type="application/json", content_encoding="utf-8", queue="q",
        headers={"id": "m", "task": "one", **names.to_headers(outer)},
    )  # fmt: skip
    token = RUNNING.set(read(message, args=[{}], kwargs={}, token="t", owner="w"))
    try:
        inner = app.publish(Placed(order_id="o-2"))
        told = app.publish(Placed(order_id="o-3"), correlation_id="mine", causation_id="yours")
    finally:
        RUNNING.reset(token)
    assert outer.correlation_id == outer.id
    assert (inner.correlation_id, inner.causation_id) == (outer.correlation_id, outer.id)
    assert (told.correlation_id, told.causation_id) == ("mine", "yours")


def test_an_event_published_twice_is_the_same_tasks(app, sent):
    for _ in range(2):
        app.publish(Placed(order_id="o-1"), id="e-1")
    assert len({message.headers["id"] for message in sent("celery")}) == 1


def test_a_handler_sent_by_delay_goes_to_its_queue_too(app, sent):
    app.tasks["two"].delay({"order_id": "o-1"})
    assert len(sent("slow")) == 1


def test_apply_runs_the_handler_decoded_and_with_a_context(app):
    seen = []

    def eager(event: Placed, ctx):
        seen.append((event, ctx.attempt))
        return event.order_id

    task = app.handler(Placed, name="eager")(eager)
    assert task.apply(({"order_id": "o-9"},)).get() == "o-9"
    assert seen == [(Placed(order_id="o-9"), 1)]


def test_every_queue_on_rabbitmq_can_hold_a_delay():
    app = Angzarr("shop", broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1")
    try:
        for name in (app.conf.task_default_queue, "crm", "angzarr-replay-outcomes"):
            queue = app.amqp.queues[name]
            assert queue.queue_arguments["x-queue-type"] == "quorum", name
            assert queue.exchange.type == "topic", name
    finally:
        app.close()


def test_the_broker_is_not_asked_to_drop_what_expires(app, sent):
    """RabbitMQ would do so when the message reaches the end of its time in the queue."""
    app.publish(Placed(order_id="o-1"), expires=30)
    (message,) = sent("celery")
    assert "expiration" not in message.properties
    assert message.headers["expires"]


def test_a_countdown_of_a_part_of_a_second_is_a_whole_one_on_rabbitmq(monkeypatch):
    app = Angzarr("p", broker="amqp://", store="memory://")
    told = []
    monkeypatch.setattr(Celery, "send_task", lambda _app, _name, **options: told.append(options))
    for countdown in (0.2, 2.5, 0, None):
        app.send_task("t", countdown=countdown)
    assert [options["countdown"] for options in told] == [1, 2.5, 0, None]


def test_two_apps_of_one_process_may_use_one_task_name(app):
    other = Angzarr("other", broker="memory://", store="memory://")
    try:
        mine = app.task(name="same", lazy=False)(first)
        theirs = other.task(name="same", lazy=False)(second)
        other.finalize(auto=True)
        app.finalize(auto=True)
        assert (app.tasks["same"], other.tasks["same"]) == (mine, theirs)
    finally:
        other.close()
