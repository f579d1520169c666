"""Many events at once: what publish would send, checked first, and an exact account of failures."""

from __future__ import annotations

import contextvars
import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from celery import signals
from hypothesis import given
from hypothesis import strategies as st
from kombu import Producer
from kombu.exceptions import OperationalError
from kombu.serialization import dumps
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from tests.apps import apps

from angzarr import Publication
from angzarr.adapters.celery.publish import batch as batching
from angzarr.adapters.celery.publish.batch import MOST_MESSAGES, MOST_TEXT, chunks
from angzarr.adapters.celery.publish.message_template import json_of
from angzarr.adapters.celery.publish.outgoing_event import OutgoingEvent
from angzarr.adapters.celery.publish.wires import OutgoingMessage
from angzarr.delivery.context import RUNNING
from angzarr.delivery.delivery import read
from angzarr.delivery.handlers import Subscription
from angzarr.errors import (
    BrokerUnavailable,
    ConfigurationError,
    EventDoesNotFit,
    InvalidDomainName,
    NoSubscriber,
    PublishIncomplete,
    UnserializableEvent,
)
from angzarr.events import NotAllPublished
from angzarr.events import headers as names
from angzarr.events.event import Event, Message, task_id_for

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=25,
)


class Placed(BaseModel):
    order_id: str


class Paid(BaseModel):
    order_id: str


def ignore(event):
    """Handle it."""


class TellTale:
    """A wire onto the memory broker, which fails as it is told."""

    def __init__(self, producer, told):
        self.producer = producer
        self.told = told

    def carry(self, messages):
        refused = None
        for position, message in enumerate(messages):
            fate = self.told.fate(message)
            if isinstance(fate, OSError):
                for gone in messages[position:]:
                    gone.lost, gone.error = True, fate
                raise fate
            if fate is None:
                self.producer.publish(message.body, **message.options)
                message.confirmed = True
            else:
                message.error = fate
                refused = refused or fate
        if refused:
            raise refused

    def tell(self, send):
        send(self.producer)

    def close(self):
        pass


def try_once(app):
    app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}


@pytest.fixture
def make_app():
    with apps(try_once, broker="memory://", store="memory://") as make:
        yield make


@pytest.fixture
def app(make_app):
    app = make_app(routes={"Placed": [{"handler": "crm.sync", "queue": "crm"}]})
    app.handler(Placed, name="one", domain="order")(ignore)
    app.handler(Placed, name="two", queue="slow")(ignore)
    return app


@pytest.fixture
def batched(monkeypatch):
    """Send as on a broker with batches; `batched.fate(message)` decides what becomes of each."""

    class Fate:
        fate = staticmethod(lambda _message: None)

    def wire_for(producer):
        producer.channel  # noqa: B018 - connects
        return TellTale(producer, Fate)

    monkeypatch.setattr(batching, "wire_for", wire_for)
    return Fate


@pytest.fixture(params=["one by one", "batched"])
def either(request):
    """Both ways by which many events are sent."""
    return None if request.param == "one by one" else request.getfixturevalue("batched")


@pytest.fixture
def sent(app):
    def take(queue=None):
        with app.connection_for_read() as connection:
            simple = connection.SimpleQueue(app.amqp.queues[queue or app.conf.task_default_queue])
            messages = []
            while simple.qsize():
                messages.append(simple.get_nowait())
                messages[-1].ack()
            simple.close()
            return messages

    for queue in (None, "slow", "crm"):
        take(queue)
    return take


@pytest.fixture
def listen():
    """Connect to one of Celery's signals for the time of a test."""
    connected = []

    def connect(signal, receiver):
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def ids(messages):
    return [message.headers[names.EVENT_ID] for message in messages]


def placed(count):
    return [Publication(Placed(order_id=f"o-{n}"), id=f"e-{n}") for n in range(count)]


# -- what is sent ------------------------------------------------------------------------------


def test_every_event_reaches_every_handler_in_order(app, sent, either):
    events = app.publish_many([Placed(order_id=f"o-{n}") for n in range(600)])
    assert [event.data["order_id"] for event in events] == [f"o-{n}" for n in range(600)]
    for queue in (None, "slow", "crm"):
        assert ids(sent(queue)) == [event.id for event in events]


def test_an_event_says_its_own_and_the_call_says_the_rest(app, sent, either):
    mine = Publication(
        {"order_id": "o-1"}, type="Placed", id="e-1", root="o-1", sequence=4, tenant_id="mine"
    )
    events = app.publish_many(
        [mine, Placed(order_id="o-2")],
        tenant_id="ours", edition="test", priority="background", occurred_at=NOON,
        correlation_id="flow", causation_id="cause", config_pins={"prices": "7"}, domain="shop",
    )  # fmt: skip
    first, second = events
    assert (first.id, first.root, first.sequence, first.tenant_id) == ("e-1", "o-1", 4, "mine")
    assert (second.root, second.sequence, second.tenant_id) == (None, None, "ours")
    for event, message in zip(events, sent(), strict=True):
        assert message.headers.items() >= names.to_headers(event).items()
        assert (event.edition, event.occurred_at, event.domain) == ("test", NOON, "shop")
        assert (event.correlation_id, event.causation_id) == ("flow", "cause")
        assert event.config_pins == {"prices": "7"}
        assert event.priority == "background"


def test_many_events_of_a_handler_continue_its_flow(app, either):
    outer = app.publish(Placed(order_id="o-1"))
    message = Message(
        body=b"", content_type="application/json", content_encoding="utf-8", queue="q",
        headers={"id": "m", "task": "one", **names.to_headers(outer)},
    )  # fmt: skip
    token = RUNNING.set(read(message, args=[{}], kwargs={}, token="t", owner="w"))
    try:
        inner = app.publish_many([Placed(order_id="o-2"), Placed(order_id="o-3")])
    finally:
        RUNNING.reset(token)
    assert {(e.correlation_id, e.causation_id) for e in inner} == {(outer.id, outer.id)}


def test_each_event_goes_to_those_of_its_own_type_and_domain(app, sent, either):
    app.handler(Paid, name="count", domain="order", ordered_by="root")(ignore)
    place = {"root": "o", "sequence": 1}
    said = [
        ("Paid", None),
        ("Paid", "shop"),
        ("Packed", "order"),
        ("Paid", "order"),
        ("Paid", "shop"),
    ]
    events = app.publish_many(
        [Publication({"order_id": "o"}, type=t, domain=d, **place) for t, d in said],
        allow_no_subscriber=True,
    )
    assert [event.domain for event in events] == ["order", "shop", "order", "order", "shop"]
    assert ids(sent()) == [events[position].id for position in (0, 2, 3)]


def test_one_event_without_a_place_and_none_is_sent(app, sent, either):
    app.handler(Paid, name="count", domain="order", ordered_by="root")(ignore)
    paid = Publication(Paid(order_id="o"), root="o")
    with pytest.raises(EventDoesNotFit, match=r"event 1 of the batch.* says no sequence"):
        app.publish_many([replace(paid, sequence=0), paid])
    assert sent() == []


def test_what_was_published_goes_again_under_the_same_ids(app, sent, either):
    events = app.publish_many([Placed(order_id="o-1"), Placed(order_id="o-2")], root="r")
    assert app.publish_many(events, root="other", tenant_id="other") == events
    first = sent()
    assert [m.headers["id"] for m in first[:2]] == [m.headers["id"] for m in first[2:]]
    assert {m.headers[names.ROOT] for m in first} == {"r"}


def test_nothing_to_publish_is_nothing_to_do(app, either):
    assert app.publish_many([]) == []
    (event,) = app.publish_many([Publication({}, type="nobody's")], allow_no_subscriber=True)
    assert event.type == "nobody's"


def test_nothing_to_send_asks_no_broker(make_app):
    app = make_app(broker="redis://127.0.0.1:1")
    assert app.publish_many([]) == []
    assert len(app.publish_many([Placed(order_id="o-1")], allow_no_subscriber=True)) == 1


OPTIONS = {
    "plain": {},
    "countdown": {"countdown": 60},
    "eta": {"eta": datetime(2040, 1, 1, tzinfo=UTC)},
    "expires": {"expires": 60},
    "queue": {"queue": "slow"},
    "exchange": {"exchange": "", "routing_key": "slow"},
    "topic": {"exchange": "elsewhere", "routing_key": "a.b", "exchange_type": "topic"},
    "limits": {"time_limit": 9, "soft_time_limit": 5, "retries": 2, "ignore_result": True},
    "group": {"group_id": "g", "group_index": 3, "parent_id": "p", "root_id": "r", "shadow": "s"},
    "stamps": {"stamped_headers": ["who"], "who": ["me"]},
    "transient": {"delivery_mode": "transient"},
    "compressed": {"compression": "zlib"},
    "reply": {"reply_to": "me"},
}


@pytest.fixture
def published(app, monkeypatch):
    """Catch what kombu is asked to publish, as its body and the rest, times and tags apart."""

    def catch(send):
        caught = []

        def publish(self, body, **options):
            kept = {k: v for k, v in options.items() if v is not None and k not in OURS}
            entity = kept.get("exchange")
            kept["exchange"] = getattr(entity, "name", entity)
            if "content_type" not in kept:
                serialized = dumps(body, kept.pop("serializer"))
                kept["content_type"], kept["content_encoding"], body = serialized
            caught.append((body, kept))

        with monkeypatch.context() as patch:
            patch.setattr(Producer, "publish", publish)
            send()
        return sorted(caught, key=lambda one: one[1]["headers"]["id"])

    return catch


#: How it is sent, not what.
OURS = ("retry", "retry_policy", "declare", "mandatory", "timeout", "confirm_timeout")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("heard", [False, True], ids=["", "heard"])
def test_a_message_of_many_is_that_of_publish_field_by_field(
    app, batched, published, monkeypatch, listen, options, heard
):
    monkeypatch.setattr(app, "now", lambda: NOON)
    if heard:
        listen(signals.before_task_publish, lambda **_: None)
    event = {"order_id": 'it\'s "ö" \\ \n', "lines": [{"deep": [{"deeper": [1.5, None, True]}]}]}
    said = {"type": "Placed", "occurred_at": NOON, "check": False}
    single = published(lambda: app.publish(event, id="e", root="r", **said, **options))
    many = published(
        lambda: app.publish_many([Publication(event, id="e", root="r")], **said, **options)
    )
    assert many == single
    assert len(many) == 3


def test_what_a_task_and_its_links_say_is_in_every_message(app, batched, published, monkeypatch):
    monkeypatch.setattr(app, "now", lambda: NOON)
    handler = app.handler(Paid, name="paid", time_limit=7, expires=60, queue="slow")(ignore)
    handler.priority = 5
    options = {"link": app.signature("linked", args=(1,)), "occurred_at": NOON}
    single = published(lambda: app.publish(Paid(order_id="o"), id="e", **options))
    said = Publication(Paid(order_id="o"), id="e")
    assert published(lambda: app.publish_many([said], **options)) == single
    assert single[0][1]["headers"]["timelimit"] == [7, None]
    assert single[0][1]["priority"] == 5


def test_a_task_that_publishes_is_the_parent_of_many_too(app, batched, published):
    @app.task(name="outer", lazy=False)
    def outer():
        app.publish_many(placed(2))

    sent = published(lambda: outer.apply(task_id="outer-1"))
    assert {one[1]["headers"]["parent_id"] for one in sent} == {"outer-1"}
    assert {one[1]["headers"]["root_id"] for one in sent} == {"outer-1"}


@given(JSON)
def test_a_body_is_what_celery_would_write(data):
    assert json_of(data) == dumps(data, "json")[2]


# -- what goes one by one ----------------------------------------------------------------------


def route(name, args, kwargs, options, task=None, **_):
    return {"queue": "slow"} if args[0]["order_id"] == "o-1" else None


def test_a_route_that_looks_at_the_event_is_asked_for_each(app, sent, batched):
    batched.fate = lambda _message: pytest.fail("a batch cannot ask")
    app.conf.task_routes = [route]
    app.handler(Paid, name="paid")(ignore)
    app.publish_many([Paid(order_id="o-1"), Paid(order_id="o-2")])
    assert len(sent("slow")) == len(sent()) == 1


def test_a_send_task_of_the_users_own_is_asked_for_each(app, batched, monkeypatch):
    batched.fate = lambda _message: pytest.fail("a batch cannot ask")
    asked = []
    monkeypatch.setattr(app, "send_task", lambda name, **_options: asked.append(name))
    app.publish_many(placed(2))
    assert asked == ["one", "two", "crm.sync"] * 2


def test_a_producer_of_the_users_own_is_used(app, sent, batched):
    batched.fate = lambda _message: pytest.fail("a batch has its own")
    with app.producer_pool.acquire() as producer:
        app.publish_many(placed(2), producer=producer)
    assert ids(sent()) == ["e-0", "e-1"]


# -- checked first -----------------------------------------------------------------------------


class Circular:
    def __repr__(self):
        return "circular"


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (Placed(order_id="o"), None, ""),
        ({"order_id": "o"}, ConfigurationError, "no event type"),
        (Publication(Circular(), type="Placed"), UnserializableEvent, "written as JSON"),
        (Publication({}, type="Unheard"), NoSubscriber, "no handler takes 'Unheard'"),
        (Publication({}, type="Placed"), EventDoesNotFit, "could not take it"),
        (Publication(Placed(order_id="o"), domain="No!"), InvalidDomainName, "No!"),
        (Event(id="e", type="Placed", data={"x": 1}), EventDoesNotFit, "could not take it"),
    ],
)
def test_one_bad_event_and_none_is_sent(app, sent, either, bad, error, says):
    events = [*placed(3), bad]
    if error is None:
        app.publish_many(events)
        assert len(sent()) == 4
        return
    with pytest.raises(error, match=says) as caught:
        app.publish_many(events)
    assert "event 3 of the batch, and so none of it, was not sent" in str(caught.value)
    assert sent() == sent("slow") == sent("crm") == []


def test_what_nests_too_deep_for_json_is_found_before_anything_is_sent(app, sent, either):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnserializableEvent, match="event 1 of the batch"):
        app.publish_many([*placed(1), Event(id="e", type="Placed", data=deep)], check=False)
    assert sent() == []


def test_a_queue_that_does_not_exist_is_found_before_anything_is_sent(app, sent, batched):
    app.amqp.queues.create_missing = False
    app.handler(Paid, name="paid", queue="missing")(ignore)
    with pytest.raises(KeyError, match="missing"):
        app.publish_many([*placed(1), Paid(order_id="o")])
    assert sent() == []


# -- the account -------------------------------------------------------------------------------


def refuse(*refused):
    """Return a fate that refuses those (event, handler)s, as a broker's own error."""
    return lambda message: (
        OperationalError("the queue is full")
        if (message.options["headers"][names.EVENT_ID], message.to.handler) in refused
        else None
    )


def test_the_account_tells_the_sent_from_the_rest(app, sent, batched):
    batched.fate = refuse(("e-1", "one"), ("e-1", "two"), ("e-1", "crm.sync"), ("e-2", "two"))
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(placed(4))
    error = caught.value
    assert [e.id for e in error.confirmed] == ["e-0", "e-3"]
    assert [e.id for e in error.uncertain] == ["e-2"], "one handler has it"
    assert [e.id for e in error.unsent] == ["e-1"], "for certain"
    assert [e.id for e in error.unconfirmed] == ["e-2", "e-1"]
    assert error.missing == ("one", "two", "crm.sync")
    assert error.event_id == "e-2"
    assert "of 4 events 2 were confirmed, 1 may have been sent, 1 were not" in str(error)
    assert "the queue is full" in str(error)
    assert isinstance(error, PublishIncomplete)
    reasons = {name: (reason.event_id, str(reason)) for name, reason in error.reasons.items()}
    assert reasons == {
        "e-1": ("e-1", "one: the queue is full"),
        "e-2": ("e-2", "two: the queue is full"),
    }


def test_nothing_is_sent_after_a_chunk_that_failed(app, sent, batched):
    batched.fate = refuse(("e-0", "one"))
    events = placed(MOST_MESSAGES)
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(events)
    first = MOST_MESSAGES // 3
    assert len(caught.value.confirmed) == first - 1
    assert [e.id for e in caught.value.unsent] == [f"e-{n}" for n in range(first, len(events))]
    assert list(caught.value.reasons) == ["e-0"], "the others were not tried"


def test_publishing_the_unconfirmed_again_completes_it(app, sent, batched):
    batched.fate = refuse(("e-1", "one"), ("e-2", "two"))
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(placed(4))
    batched.fate = lambda _message: None
    app.publish_many(caught.value.unconfirmed)
    wanted = {task_id_for(f"e-{n}", "one") for n in range(4)}
    assert {message.headers["id"] for message in sent()} == wanted


def test_what_was_in_flight_when_the_connection_ended_is_uncertain(app, sent, batched):
    batched.fate = lambda message: (
        ConnectionResetError("gone")
        if message.options["headers"][names.EVENT_ID] == "e-2"
        else None
    )
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(placed(4), retry=False)
    error = caught.value
    assert [e.id for e in error.confirmed] == ["e-0", "e-1"]
    assert [e.id for e in error.uncertain] == ["e-2", "e-3"]
    assert error.unsent == ()


def test_a_connection_that_comes_back_costs_no_error_and_sends_nothing_confirmed_twice(
    app, sent, batched
):
    app.conf.task_publish_retry_policy["retry_errors"] = (ConnectionResetError,)
    breaks = [ConnectionResetError("gone")]
    batched.fate = lambda message: (
        breaks.pop() if breaks and message.options["headers"][names.EVENT_ID] == "e-2" else None
    )
    app.publish_many(placed(4))
    assert breaks == []
    assert ids(sent()) == ["e-0", "e-1", "e-2", "e-3"]


def test_if_nothing_was_sent_the_broker_is_away(app, batched):
    batched.fate = lambda _message: OperationalError("refused")
    app.conf.broker_url = "memory://guest:hunter2@here//"
    with pytest.raises(BrokerUnavailable, match="none of 3 events was sent") as caught:
        app.publish_many(placed(3))
    assert "hunter2" not in str(caught.value)


def test_one_by_one_stops_at_the_first_that_fails(app, sent, monkeypatch):
    publish = Producer.publish

    def fail(self, *args, **options):
        if options["headers"][names.EVENT_ID] == "e-2" and options["headers"]["task"] == "two":
            raise ConnectionResetError("gone")
        return publish(self, *args, **options)

    monkeypatch.setattr(Producer, "publish", fail)
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(placed(4))
    error = caught.value
    assert [e.id for e in error.confirmed] == ["e-0", "e-1"]
    assert [e.id for e in error.uncertain] == ["e-2"]
    assert [e.id for e in error.unsent] == ["e-3"]
    assert ids(sent("slow")) == ["e-0", "e-1"]


def test_one_by_one_a_mistake_half_way_is_accounted_for_too(app, sent):
    app.amqp.queues.create_missing = False
    app.handler(Paid, name="paid", queue="missing")(ignore)
    paid = Publication(Paid(order_id="o"), id="p")
    with pytest.raises(KeyError, match="missing"):
        app.publish_many([paid, *placed(1)])
    with pytest.raises(NotAllPublished, match="missing") as caught:
        app.publish_many([*placed(1), paid])
    assert [e.id for e in caught.value.confirmed] == ["e-0"]
    assert [e.id for e in caught.value.unsent] == ["p"]
    assert caught.value.reasons["p"].refused, "sending it again does not help"


def test_an_interrupt_is_not_hidden_behind_an_account(app, batched):
    def interrupt(_message):
        raise KeyboardInterrupt

    batched.fate = interrupt
    with pytest.raises(KeyboardInterrupt):
        app.publish_many(placed(2))


def test_the_account_survives_pickling(app, batched):
    batched.fate = refuse(("e-1", "one"))
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(placed(3))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (again.confirmed, again.uncertain, again.unsent) == (
        caught.value.confirmed,
        caught.value.uncertain,
        caught.value.unsent,
    )
    assert (str(again), again.missing) == (str(caught.value), caught.value.missing)
    reasons = [(name, str(one), one.refused) for name, one in caught.value.reasons.items()]
    assert [(name, str(one), one.refused) for name, one in again.reasons.items()] == reasons


# -- chunks ------------------------------------------------------------------------------------


def test_no_chunk_holds_more_than_may_be_in_flight():
    def item(handlers, size):
        messages = [OutgoingMessage(Subscription(f"h{n}")) for n in range(handlers)]
        return OutgoingEvent(Event(id="e", type="t", data={}), messages, "x" * size)

    outgoing = [
        *(item(3, 10) for _ in range(500)),
        item(1, MOST_TEXT * 2),
        item(0, 10),
        *(item(2, MOST_TEXT // 3) for _ in range(4)),
    ]
    cut = list(chunks(outgoing))
    assert [one for chunk in cut for one in chunk] == outgoing, "all, in order"
    for chunk in cut:
        messages = sum(len(one.messages) for one in chunk)
        text = sum(len(one.text) * len(one.messages) for one in chunk)
        assert len(chunk) == 1 or (messages <= MOST_MESSAGES and text <= MOST_TEXT)


# -- who listens -------------------------------------------------------------------------------


def test_after_task_publish_is_said_of_what_is_on_the_broker_only(app, sent, batched, listen):
    before, after = [], []
    listen(signals.before_task_publish, lambda headers, **_: before.append(headers["id"]))
    listen(signals.after_task_publish, lambda headers, **_: after.append(headers["id"]))
    batched.fate = refuse(("e-1", "one"), ("e-1", "two"))
    with pytest.raises(NotAllPublished):
        app.publish_many(placed(3))
    all_three = ("one", "two", "crm.sync")
    assert before == [task_id_for(f"e-{n}", handler) for n in range(3) for handler in all_three]
    refused = [task_id_for("e-1", handler) for handler in ("one", "two")]
    assert after == [task_id for task_id in before if task_id not in refused]


def test_signals_say_of_many_what_they_say_of_one(app, batched, listen, monkeypatch):
    heard = []

    def hear(signal, **said):
        said["declare"] = [queue.name for queue in said.get("declare", ())]
        said.pop("retry_policy", None)
        if "properties" in said:
            said["properties"] = {k: v for k, v in said["properties"].items() if k not in OURS}
        heard.append((signal.name, json.dumps(said, sort_keys=True, default=str)))

    for signal in (signals.before_task_publish, signals.after_task_publish, signals.task_sent):
        listen(signal, hear)
    monkeypatch.setattr(app, "now", lambda: NOON)
    app.publish(Placed(order_id="o"), id="e", occurred_at=NOON)
    single, heard[:] = list(heard), []
    app.publish_many([Publication(Placed(order_id="o"), id="e")], occurred_at=NOON)
    assert sorted(heard) == sorted(single)
    assert len(single) == 9


def test_a_listener_may_change_what_is_sent(app, sent, batched, listen):
    def change(headers, body, properties, **_):
        headers["x-listener"] = headers[names.EVENT_ID]
        body[0][0]["order_id"] += "!"
        properties["priority"] = 7

    app.handler(Paid, name="paid")(ignore)
    listen(signals.before_task_publish, change)
    events = app.publish_many([Paid(order_id="o-0"), Paid(order_id="o-1")])
    messages = sent()
    assert [m.headers["x-listener"] for m in messages] == [event.id for event in events]
    assert [m.payload[0][0]["order_id"] for m in messages] == ["o-0!", "o-1!"]
    assert [m.properties["priority"] for m in messages] == [7, 7]


def test_what_a_listener_leaves_current_is_not_around_the_next_message(app, sent, batched, listen):
    """A tracer makes its span current before a publish and puts the former back after it."""
    current = contextvars.ContextVar("span", default="none")
    around, tokens = [], {}

    def before(headers, **_):
        around.append(current.get())
        tokens[headers["id"]] = current.set(headers["id"])

    def after(headers, **_):
        assert current.get() in (headers["id"], *tokens)
        current.reset(tokens.pop(headers["id"]))

    app.handler(Paid, name="paid")(ignore)
    listen(signals.before_task_publish, before)
    listen(signals.after_task_publish, after)
    app.publish_many([Paid(order_id=f"o-{n}") for n in range(3)])
    assert around == ["none"] * 3
    assert tokens == {}
    assert current.get() == "none"


def test_monitors_are_told_of_every_task_that_was_sent(app, batched, monkeypatch):
    told = []
    app.conf.task_send_sent_event = True
    publish = Producer.publish

    def watch(self, body, **options):
        if options.get("exchange") == "celeryev":
            told.append(body)
            return None
        return publish(self, body, **options)

    monkeypatch.setattr(Producer, "publish", watch)
    app.publish(Placed(order_id="o"), id="e-0")
    single, told[:] = list(told), []
    app.publish_many(placed(2))
    assert [one["uuid"] for one in told[:3]] == [one["uuid"] for one in single]
    varying = ("clock", "timestamp", "args")
    for one, many in zip(single, told, strict=False):
        assert {k: v for k, v in one.items() if k not in varying} == {
            k: v for k, v in many.items() if k not in varying
        }
    assert len(told) == 6


def test_events_for_monitors_that_are_lost_do_not_fail_the_publish(app, batched, sent, monkeypatch):
    app.conf.task_send_sent_event = True

    def lose(_self, _send):
        raise ConnectionResetError("gone")

    monkeypatch.setattr(TellTale, "tell", lose)
    app.publish_many(placed(2))
    assert ids(sent()) == ["e-0", "e-1"]


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def test_every_event_has_a_span_of_its_own_and_names_it(app, sent, either, spans):
    app.handler(Paid, name="paid")(ignore)
    events = app.publish_many([Paid(order_id=f"o-{n}") for n in range(3)])
    found = spans.get_finished_spans()
    assert [span.parent for span in found] == [None] * 3
    named = [
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
        for span in found
    ]
    assert [event.traceparent for event in events] == named
    assert [message.headers[names.TRACEPARENT] for message in sent()] == named


def test_the_span_of_an_event_that_was_not_confirmed_says_so(app, sent, batched, spans):
    batched.fate = refuse(("e-1", "one"))
    with pytest.raises(NotAllPublished):
        app.publish_many(placed(2))
    assert [span.status.is_ok for span in spans.get_finished_spans()] == [True, False]
