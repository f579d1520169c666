"""Publishing: one message for each handler, and the flow that an event belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from celery import Celery
from pydantic import BaseModel

from angzarr import Angzarr
from angzarr.adapters.celery.publish.outbox import SingleConnectionEvents
from angzarr.delivery.context import RUNNING
from angzarr.delivery.delivery import read
from angzarr.errors import EventDoesNotFit, NoSubscriber
from angzarr.events import Priority
from angzarr.events import headers as names
from angzarr.events.event import Event, Message, task_id_for
from angzarr.events.headers import from_headers
from angzarr.events.publication import Publication


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


@pytest.mark.parametrize("broker", ["amqp://", None])  # without one Celery takes a RabbitMQ
def test_a_countdown_of_a_part_of_a_second_is_a_whole_one_on_rabbitmq(monkeypatch, broker):
    app = Angzarr("p", broker=broker, store="memory://")
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


# -- in order ----------------------------------------------------------------------------------


@pytest.fixture
def ordered(app):
    """Have all of the domain order taken in order, here and elsewhere."""
    app.handler(Placed, name="count", domain="order", ordered_by="root", queue="slow")(first)
    return app


PLACE = {"domain": "order", "root": "o-1", "sequence": 3}


def test_an_ordered_handler_is_sent_every_event_of_its_domain_with_its_place(ordered, sent):
    ordered.publish({"x": 1}, type="Packed", edition="e", **PLACE)
    (message,) = sent("slow")
    assert message.headers["task"] == "count"
    assert message.headers[names.EVENT_TYPE] == "Packed"
    said = (names.DOMAIN, names.ROOT, names.SEQUENCE, names.EDITION)
    assert [message.headers[name] for name in said] == ["order", "o-1", 3, "e"]
    assert sent("celery") == sent("crm") == []


def test_an_event_of_its_type_without_a_domain_is_of_the_handlers(ordered, sent):
    event = ordered.publish(Placed(order_id="o-1"), root="o-1", sequence=0)
    assert event.domain == "order"
    told = [*sent("celery"), *sent("slow"), *sent("crm")]
    assert [m.headers["task"] for m in told] == ["one", "two", "count", "crm.sync"]
    assert {m.headers[names.DOMAIN] for m in told} == {"order"}


def test_an_event_of_another_domain_goes_to_those_who_take_events_as_they_come(ordered, sent):
    ordered.publish(Placed(order_id="o-1"), domain="shop")
    told = [*sent("celery"), *sent("slow"), *sent("crm")]
    assert [m.headers["task"] for m in told] == ["one", "two", "crm.sync"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "count takes .* no root and no sequence: publish it with domain, root and sequence"),
        ({"root": "o-1"}, "says no sequence"),
        ({"domain": "order", "type": "Packed"}, "no root and no sequence"),
    ],
)
def test_an_event_without_a_place_is_sent_to_nobody(ordered, sent, said, why):
    with pytest.raises(EventDoesNotFit, match=why):
        ordered.publish(Placed(order_id="o-1"), **said)
    assert sent("celery") == sent("slow") == sent("crm") == []


@pytest.mark.parametrize("sequence", [-1, 2**32, 10**5000, True, "3", 1.5], ids=type)
@pytest.mark.parametrize("check", [True, False])
def test_a_sequence_that_a_worker_would_not_read_is_sent_to_nobody(ordered, sent, sequence, check):
    where = {"domain": "order", "root": "o-1", "sequence": sequence}
    event = Event(id="e", type="Placed", data={"order_id": "o-1"}, **where)
    for publish in (
        lambda: ordered.publish(Placed(order_id="o-1"), check=check, **where),
        lambda: ordered.publish_many([Publication(Placed(order_id="o-1"), **where)], check=check),
        lambda: ordered.publish_many([event], check=check),
    ):
        with pytest.raises(EventDoesNotFit, match="sequence must be a whole number from 0 to 4294"):
            publish()
    assert sent("celery") == sent("slow") == sent("crm") == []


@pytest.mark.parametrize("sequence", [0, 2**31, 2**32 - 1])
def test_a_sequence_that_is_sent_is_read_by_a_worker(ordered, sent, sequence):
    ordered.publish(Placed(order_id="o-1"), domain="order", root="o-1", sequence=sequence)
    for message in sent("slow"):
        found = from_headers(message.headers, data=None, event_id="", type="")
        assert found.sequence == sequence


def test_who_does_not_check_sends_it_anyway(ordered, sent):
    ordered.publish(Placed(order_id="o-1"), check=False)
    assert [m.headers["task"] for m in sent("slow")] == ["two", "count"]


def test_bare_json_must_fit_an_ordered_handler_of_its_type(ordered, sent):
    with pytest.raises(EventDoesNotFit, match="could not take it"):
        ordered.publish({"order": 1}, type="Placed", **PLACE)
    assert sent("slow") == []


def test_a_route_of_a_domain_brings_all_its_events(sent):
    routes = {"order/*": [{"handler": "far", "queue": "crm"}]}
    app = Angzarr("shop", broker="memory://", store="memory://", routes=routes)
    try:
        app.publish(Placed(order_id="o-1"), domain="order")
        app.publish_many([{}, {}], type="Packed", domain="order")
        with pytest.raises(NoSubscriber, match="no handler takes 'Placed'"):
            app.publish(Placed(order_id="o-1"), domain="shop")
        with pytest.raises(NoSubscriber):
            app.publish(Placed(order_id="o-1"))
    finally:
        app.close()
    assert [m.headers["task"] for m in sent("crm")] == ["far"] * 3


def test_what_an_aggregate_decided_reaches_ordered_handlers(ordered, sent):
    events = [
        Event(id=f"e-{number}", type=kind, data={}, domain=domain, root="o-1", sequence=number)
        for number, (kind, domain) in enumerate(
            [("Placed", "order"), ("Packed", "order"), ("Packed", "shop")]
        )
    ]
    ordered._parts.outbox.publish(events)
    told = [m for m in sent("slow") if m.headers["task"] == "count"]
    place = (names.EVENT_ID, names.DOMAIN, names.ROOT, names.SEQUENCE)
    assert [tuple(m.headers[name] for name in place) for m in told] == [
        ("e-0", "order", "o-1", 0),
        ("e-1", "order", "o-1", 1),
    ]


def test_what_is_relayed_reaches_ordered_handlers_too(ordered):
    relayed = []
    event = Event(id="e", type="Packed", data={}, domain="order", root="o-1", sequence=4)
    publisher = SimpleNamespace(publish=relayed.append)
    SingleConnectionEvents(ordered._context, ordered.ops.queue_for, publisher).publish(
        [event, replace(event, domain="shop")]
    )
    (message,) = relayed
    assert (message.task, message.queue) == ("count", "slow")
    assert message.headers[names.SEQUENCE] == 4
