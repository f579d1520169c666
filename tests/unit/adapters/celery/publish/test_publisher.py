"""Publishing raw: confirmed, to the queue that is named, at once or later."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from amqp.exceptions import MessageNacked, PreconditionFailed
from hypothesis import given
from hypothesis import strategies as st
from kombu import Exchange, Producer, Queue
from kombu.common import Broadcast

from angzarr.adapters.celery.publish.publisher import (
    LONGEST_NATIVE,
    CeleryPublisher,
    CelerySchedule,
    native_delay,
    whole_seconds,
)
from angzarr.adapters.celery.publish.wires import NoQueue
from angzarr.delivery.schedule import REFUSED_FOR, SLEPT
from angzarr.errors import BrokerUnavailable, PublishIncomplete
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.payloads.claim_check import check_in

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUORUM = {"x-queue-type": "quorum"}


def ignore(event):
    """Handle it."""


class Clock:
    def now(self):
        return NOW


class Recorder(CeleryPublisher):
    """Notes what would be sent."""

    def __init__(self, app):
        super().__init__(app)
        self.sent, self.declared, self.errors = [], [], []

    def send(self, message, exchange, routing_key, declare=()):
        self.sent.append((message, getattr(exchange, "name", exchange), routing_key))
        self.declared.append([entity.name for entity in declare])
        if self.errors:
            raise self.errors.pop(0)


def message(queue, **headers):
    return Message(
        body=b"[[1], {}, {}]", content_type="application/json", content_encoding="utf-8",
        headers={"id": "task-1", "task": "t", **headers}, queue=queue, priority=3,
        properties={"correlation_id": "task-1", "reply_to": "me"},
    )  # fmt: skip


@pytest.fixture
def amqp_app(make_app):
    return make_app(broker="amqp://guest:hunter2@127.0.0.1:1//", store="redis://127.0.0.1:1")


class Rows:
    """Notes what would wait in a store."""

    def __init__(self):
        self.waiting = []

    def put(self, copy, at):
        self.waiting.append((copy, at))


def schedule(app, queue, delay):
    """Schedule a copy and return (what was sent, what waits in the store)."""
    recorder, rows = Recorder(app), Rows()
    CelerySchedule(app, recorder, lambda: rows, Clock()).put(message(queue), NOW + delay)
    return recorder.sent, rows.waiting


@pytest.fixture
def put(amqp_app):
    """Schedule a copy with RabbitMQ and return (copy, exchange, routing key)."""

    def put(delay, queue=None):
        (sent,), waiting = schedule(amqp_app, queue or amqp_app.conf.task_default_queue, delay)
        assert waiting == []
        return sent

    return put


def told(routing_key):
    """Read the delay in a native routing key, and the key behind it."""
    parts = routing_key.split(".", 28)
    return int("".join(parts[:28]), 2), parts[28]


def test_a_message_goes_out_as_it_is(app, sent):
    queue = app.conf.task_default_queue
    CeleryPublisher(app).publish(message(queue, custom=[1, None]))
    (got,) = sent()
    assert got.body in {b"[[1], {}, {}]", "[[1], {}, {}]"}
    assert (got.content_type, got.content_encoding) == ("application/json", "utf-8")
    assert got.headers == {"id": "task-1", "task": "t", "custom": [1, None]}
    assert got.properties["correlation_id"] == "task-1"
    assert got.properties["reply_to"] == "me"
    assert got.properties["priority"] == 3
    assert got.properties["delivery_mode"] == 2, "persistent"


def test_a_queue_that_nobody_declared_yet_is_declared_first(app, sent, unique_name):
    app.amqp.queues.add(Queue(unique_name))
    CeleryPublisher(app).publish(message(unique_name))
    assert len(sent(unique_name)) == 1


KINDS = {
    "direct": Queue("q", Exchange("shop", type="direct"), routing_key="k"),
    "nameless": Queue("q", Exchange("", type="direct"), routing_key="k"),
    "topic": Queue("q", Exchange("shop", type="topic"), routing_key="k.#"),
    "fanout": Queue("q", Exchange("shop", type="fanout")),
    "headers": Queue("q", Exchange("shop", type="headers")),
    "broadcast": Broadcast("all", queue="q"),
    "no declare": Queue("q", no_declare=True),
}


def publish(app, *errors, **of_message):
    """Publish a message of the queue "q" and return the recorder."""
    recorder = Recorder(app)
    recorder.errors.extend(errors)
    recorder.publish(replace(message("q"), **of_message))
    return recorder


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_reaches_its_own_queue_and_no_other(amqp_app, kind):
    """Other queues of the exchange may have the same key, be it "#" or none."""
    amqp_app.amqp.queues.add(KINDS[kind])
    went = publish(amqp_app, exchange="shop", routing_key="k.x")
    assert [way for _, *way in went.sent] == [["", "q"]]
    assert went.declared == [[] if kind == "broadcast" else ["q"]]


def returned():
    error = BrokerUnavailable("no queue takes 'q'", refused=True)
    error.__cause__ = NoQueue("no queue takes 'q'")
    return error


def test_a_queue_of_others_is_never_declared(amqp_app):
    went = publish(amqp_app, exchange="shop", routing_key="k.x")
    assert [way for _, *way in went.sent] == [["", "q"]]
    assert went.declared == [[]]
    assert "q" not in amqp_app.amqp.queues


def test_where_a_queue_of_others_is_gone_the_way_that_it_came_by_is_taken(amqp_app):
    went = publish(amqp_app, returned(), exchange="shop", routing_key="k.x")
    assert [way for _, *way in went.sent] == [["", "q"], ["shop", "k.x"]]
    assert went.declared == [[], []]


@pytest.mark.parametrize(
    ("error", "exchange"), [(returned(), ""), (BrokerUnavailable("it is away"), "shop")]
)
def test_no_other_way_is_taken_where_none_is_known_or_needed(amqp_app, error, exchange):
    with pytest.raises(BrokerUnavailable):
        publish(amqp_app, error, exchange=exchange, routing_key="k.x")


def test_a_queue_of_ours_that_is_gone_is_declared_and_no_other_way_taken(amqp_app):
    amqp_app.amqp.queues.add(KINDS["topic"])
    with pytest.raises(BrokerUnavailable):
        publish(amqp_app, returned(), exchange="shop", routing_key="k.x")


def test_the_queue_of_a_handler_is_one_of_ours_before_anybody_sent_to_it(amqp_app):
    amqp_app.handler("placed", name="one", queue="q")(ignore)
    assert publish(amqp_app).declared == [["q"]]


def test_a_broadcast_that_is_no_queue_goes_to_its_listeners(app):
    """Only RabbitMQ keeps a queue for each; elsewhere one of that name would be read by nobody."""
    app.amqp.queues.add(Broadcast("all"))
    went = publish(app, exchange="all", routing_key="")
    assert [way for _, *way in went.sent] == [["all", ""]]
    assert went.declared == [["all"]]


WEEK = 7 * 24 * 3600.0


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(1, 1), (1.0001, 2), (59.5, 60), (3600, 3600), (WEEK, WEEK), (WEEK + 0.01, WEEK + 1)],
)
def test_native_delays_are_whole_seconds_rounded_up(put, delay, seconds):
    copy, exchange, routing_key = put(timedelta(seconds=delay))
    assert exchange == "celery_delayed_27"
    assert told(routing_key)[0] == seconds
    assert "eta" not in copy.headers


@given(st.timedeltas(timedelta(seconds=1), LONGEST_NATIVE))
def test_a_copy_that_says_its_time_is_never_later_than_900_ms(delay):
    held = timedelta(seconds=whole_seconds(message("q", **{names.ATTEMPT: 2}), delay))
    assert -SLEPT <= held - delay < timedelta(seconds=1) - SLEPT


@given(st.timedeltas(timedelta(seconds=1), LONGEST_NATIVE))
def test_a_publishers_eta_is_never_too_early(delay):
    held = timedelta(seconds=whole_seconds(message("q", eta="then"), delay))
    assert timedelta(0) <= held - delay < timedelta(seconds=1)


TAKES_ALL = [Queue("audit", Exchange("x", type="topic"), routing_key=key) for key in ("#", "*.#")]


@pytest.mark.parametrize("name", ["orders", "orders.eu", "#", "*", "a%2Eb"])
def test_a_native_delay_ends_in_its_own_queue_and_in_none_of_a_like_key(amqp_app, name):
    """Celery binds each queue to the end of the delay with "#." before its key."""
    like = ("orders", "orders.#", "#.eu", "*.orders", "a.b")
    for number, key in enumerate(like):
        other = Queue(f"other-{number}", Exchange("x", type="topic"), routing_key=key)
        amqp_app.amqp.queues.add(other)
    queue = Queue(name, Exchange("x", type="topic"), routing_key="orders", queue_arguments=QUORUM)
    amqp_app.amqp.queues.add(queue)
    ((_, _, key),), _ = schedule(amqp_app, name, timedelta(seconds=5))
    seconds, word = told(key)
    assert seconds == 5
    assert "." not in word
    assert word not in {"#", "*"}
    assert not {word.removeprefix("angzarr:")} & {"orders.eu", "a.b"}


@pytest.mark.parametrize("all_", TAKES_ALL)
def test_where_another_queue_takes_all_that_is_delayed_the_store_waits(amqp_app, all_):
    amqp_app.amqp.queues.add(all_)
    queue = amqp_app.conf.task_default_queue
    sent, waiting = schedule(amqp_app, queue, timedelta(minutes=1))
    assert (len(sent), len(waiting)) == (0, 1)


def test_where_a_name_leaves_no_room_in_the_key_the_store_waits(amqp_app):
    name = "q" * 200
    queue = Queue(name, Exchange("x", type="topic"), routing_key="k", queue_arguments=QUORUM)
    amqp_app.amqp.queues.add(queue)
    sent, waiting = schedule(amqp_app, name, timedelta(minutes=1))
    assert (len(sent), len(waiting)) == (0, 1)


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(minutes=1)])
def test_what_the_broker_refuses_waits_in_the_store_and_holds_nobody(amqp_app, delay):
    recorder, rows = Recorder(amqp_app), Rows()
    recorder.errors.append(BrokerUnavailable("404", refused=True))
    copy = message(amqp_app.conf.task_default_queue)
    CelerySchedule(amqp_app, recorder, lambda: rows, Clock()).put(copy, NOW + delay)
    assert rows.waiting == [(copy, NOW + max(delay, REFUSED_FOR))]


def test_a_broker_that_is_away_is_waited_for(amqp_app):
    recorder, rows = Recorder(amqp_app), Rows()
    recorder.errors.append(BrokerUnavailable("away"))
    with pytest.raises(BrokerUnavailable, match="away"):
        CelerySchedule(amqp_app, recorder, lambda: rows, Clock()).put(message("q"), NOW)
    assert rows.waiting == []


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(milliseconds=5), timedelta(days=-1)])
def test_what_is_due_is_sent_at_once(put, amqp_app, delay):
    copy, exchange, _ = put(delay)
    assert not exchange.startswith("celery_delayed")
    assert "eta" not in copy.headers


@given(st.timedeltas(timedelta(milliseconds=6), timedelta(days=365)))
def test_where_the_broker_cannot_wait_the_store_does_and_the_copy_stays_as_it_is(delay):
    sent, waiting = schedule(APP, "q", delay)
    assert sent == []
    assert waiting == [(message("q"), NOW + delay)]


@pytest.mark.parametrize("delay", [0.006, 0.2, 0.9999])
def test_what_native_delay_cannot_tell_waits_in_the_store(amqp_app, delay):
    sent, waiting = schedule(amqp_app, amqp_app.conf.task_default_queue, timedelta(seconds=delay))
    assert (len(sent), len(waiting)) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "kind", "native"),
    [
        (QUORUM, "topic", True),
        (QUORUM, "direct", False),
        ({"x-queue-type": "classic"}, "topic", False),
        (None, "topic", False),
    ],
)
def test_only_quorum_queues_behind_a_topic_exchange_wait_natively(
    amqp_app, arguments, kind, native
):
    queue = Queue("q", Exchange("x", type=kind), routing_key="k", queue_arguments=arguments)
    assert native_delay(amqp_app, queue) is native
    amqp_app.amqp.queues.add(queue)
    sent, waiting = schedule(amqp_app, "q", timedelta(minutes=1))
    assert (len(sent), len(waiting)) == ((1, 0) if native else (0, 1))


def test_the_longest_native_delay_fits_the_routing_key(put):
    assert told(put(LONGEST_NATIVE)[2])[0] == 2**28 - 1


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError("gone"), MessageNacked("full"), PreconditionFailed("other arguments")],
)
def test_what_was_not_confirmed_is_one_error_without_the_password(make_app, monkeypatch, error):
    app = make_app()
    app.conf.task_publish_retry_policy = {"max_retries": 0}
    app.conf.broker_url = "memory://guest:hunter2@here//"

    def refuse(*_args, **_options):
        raise error

    monkeypatch.setattr("kombu.messaging.Producer.publish", refuse)
    with pytest.raises(BrokerUnavailable, match="did not confirm") as caught:
        CeleryPublisher(app).publish(message("q"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("error", [MessageNacked("full"), PreconditionFailed("other arguments")])
def test_a_refused_publish_says_who_is_missing(app, monkeypatch, error):
    for name in ("one", "two"):
        app.handler("placed", name=name)(ignore)
    publish, refused = Producer.publish, [error]

    def refuse(*args, **options):
        if options["headers"]["task"] == "two" and refused:
            raise refused[0]
        return publish(*args, **options)

    monkeypatch.setattr(Producer, "publish", refuse)
    with pytest.raises(PublishIncomplete) as caught:
        app.publish({}, type="placed")
    assert caught.value.missing == ("two",)


def test_every_task_message_names_the_queue_it_was_first_sent_to(app, sent):
    @app.task(name="t", lazy=False)
    def task():
        pass

    task.delay()
    task.apply_async(queue="other")
    assert sent()[0].headers[names.QUEUE] == app.conf.task_default_queue
    assert sent("other")[0].headers[names.QUEUE] == "other"


@pytest.fixture(autouse=True)
def _app(app):
    global APP  # noqa: PLW0603 - hypothesis runs many examples, a fixture once
    APP = app


APP = None


def test_a_copy_with_other_arguments_waits_sealed_where_all_bodies_are_encrypted(make_app):
    """As it is made by `self.retry(args=…)`: a copy of an encrypted message has no open body."""
    key = base64.b64encode(b"k" * 32).decode()
    encrypted = {"encryption_keys": {"k1": key}, "encrypt": "all"}
    for payloads, is_open in (({}, True), (encrypted, False)):
        app = make_app(payloads=payloads)
        _, [(copy, _)] = schedule(app, "q", timedelta(minutes=1))
        assert (copy.body == message("q").body) is is_open
        assert (check_in(copy.headers) is None) is is_open
