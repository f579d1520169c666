"""Many events on real brokers: the same messages as one by one, and a true account of any loss."""

from __future__ import annotations

import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from celery import signals
from kombu import Queue
from tests.apps import apps
from tools.tcp_proxy import LossyProxy

from angzarr import Publication
from angzarr.adapters.celery.publish import wires as confirmed_wire
from angzarr.adapters.celery.publish.batch import MOST_MESSAGES
from angzarr.adapters.celery.publish.wires import ConfirmedWire, PipelinedWire, wire_for
from angzarr.errors import BrokerUnavailable, PublishError
from angzarr.events import NotAllPublished
from angzarr.events import headers as names


def ignore(event):
    """Handle it."""


@pytest.fixture
def make_app(unique_name):
    def prepare(app):
        app.conf.task_default_queue = unique_name
        app.conf.broker_connection_timeout = 2
        app.handler("placed", name="one")(ignore)

    with apps(prepare, store="redis://127.0.0.1:1") as make:
        yield make


@pytest.fixture(params=["redis", "redis by kombu", "rabbitmq"])
def app(request, make_app):
    if request.param == "rabbitmq":
        return make_app(broker=request.getfixturevalue("amqp_url"))
    options = {"redis_transport": "kombu"} if "kombu" in request.param else {}
    return make_app(broker=request.getfixturevalue("redis_url"), **options)


@pytest.fixture
def rabbitmq(make_app, amqp_url):
    return make_app(broker=amqp_url)


@pytest.fixture
def proxied(make_app):
    """An app whose connections a proxy may cut, and the proxy."""
    opened = []

    def proxied(url):
        there = urlsplit(url)
        proxy = LossyProxy(there.hostname, there.port)
        proxy.__enter__()
        opened.append(proxy)
        login = f"{there.username}:{there.password}@" if there.username else ""
        return make_app(
            broker=there._replace(netloc=f"{login}127.0.0.1:{proxy.port}").geturl()
        ), proxy

    yield proxied
    for proxy in opened:
        proxy.__exit__()


def events(count, *, start=0):
    return [
        Publication({"n": n}, type="placed", id=f"e-{n}", root=f"r-{n}")
        for n in range(start, start + count)
    ]


def take(app, queue=None):
    """Take every message that waits, in order."""
    messages = []
    with app.connection_for_read() as connection:
        name = queue or app.conf.task_default_queue
        channel = connection.default_channel
        while (message := channel.basic_get(name, no_ack=True)) is not None:
            if not isinstance(message, channel.Message):
                message = channel.message_to_python(message)
            messages.append(message)
    return messages


def ids(messages):
    return [message.headers[names.EVENT_ID] for message in messages]


def on_the_wire(message):
    """Return all of a message but what the broker or the channel numbers it with."""
    info = {k: v for k, v in message.delivery_info.items() if k in ("exchange", "routing_key")}
    properties = {k: v for k, v in message.properties.items() if k != "delivery_tag"}
    properties.pop("delivery_info", None)
    headers = {k: v for k, v in message.headers.items() if k != names.OCCURRED_AT}
    headers.get("application_headers", {}).pop(names.OCCURRED_AT, None)
    properties.pop("application_headers", None)
    kind = (message.content_type, message.content_encoding)
    return {"body": message.payload, "kind": kind, "headers": headers} | properties | info


# -- what arrives ------------------------------------------------------------------------------


def test_each_broker_has_its_wire(app):
    with app.producer_pool.acquire() as producer:
        kind = ConfirmedWire if app.ops.broker_url.startswith("amqp") else PipelinedWire
        assert isinstance(wire_for(producer), kind)


@pytest.mark.parametrize("options", [{}, {"expires": 600}, {"compression": "zlib"}], ids=str)
def test_a_message_of_many_is_that_of_publish(app, options):
    compare_with_publish(app, options)


def test_a_message_of_many_is_that_of_publish_when_it_is_to_wait(make_app, redis_url):
    """RabbitMQ keeps such a message where it cannot be looked at."""
    compare_with_publish(make_app(broker=redis_url), {"countdown": 600})


def compare_with_publish(app, options):
    said = {"type": "placed", "id": "e-1", "root": "r-1"}
    app.publish({"n": [1, {"ü": None}]}, **said, **options)
    app.publish_many([Publication({"n": [1, {"ü": None}]}, **said)], **options)
    one, many = map(on_the_wire, take(app))
    for time in ("eta", "expires"):
        if one["headers"][time]:
            assert many["headers"].pop(time) > one["headers"].pop(time)
    assert many == one
    assert many["delivery_mode"] == 2


def test_thousands_arrive_once_in_order_in_every_handlers_queue(app, unique_name):
    app.handler("placed", name="two", queue=f"{unique_name}-slow")(ignore)
    published = app.publish_many(events(2 * MOST_MESSAGES + 1))
    wanted = [event.id for event in published]
    assert ids(take(app)) == ids(take(app, f"{unique_name}-slow")) == wanted


def test_threads_share_an_app(app):
    app.publish_many(events(1))
    threads = [
        threading.Thread(target=app.publish_many, args=(events(600, start=1000 * n),))
        for n in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ids(take(app))
    assert sorted(found) == sorted(
        ["e-0", *(f"e-{1000 * n + k}" for n in (1, 2) for k in range(600))]
    )


def test_large_events_are_sent_in_chunks_that_fit(app):
    large = [Publication({"x": "y" * 400_000}, type="placed", id=f"e-{n}") for n in range(8)]
    app.publish_many(large)
    assert ids(take(app)) == [f"e-{n}" for n in range(8)]


def test_monitors_hear_of_every_task_that_was_sent(app):
    app.conf.task_send_sent_event = True
    heard = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"task-sent": heard.append})
        with receiver.consumer_context() as (own, _, _):
            with suppress(TimeoutError):
                own.drain_events(timeout=0.2)  # Redis subscribes with the first turn
            app.publish_many(events(30))
            while len(heard) < 30:
                own.drain_events(timeout=60)
    assert [one["uuid"] for one in heard] == [m.headers["id"] for m in take(app)]


# -- Redis ---------------------------------------------------------------------------------------


def test_a_lost_reply_is_uncertain_and_the_account_is_true(proxied, redis_url):
    app, proxy = proxied(redis_url)
    app.publish_many(events(1))
    take(app)
    lost = MOST_MESSAGES + 10
    proxy.lose_replies(f'"e-{lost}"'.encode())
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(events(3 * MOST_MESSAGES), retry=False)
    error = caught.value
    chunk = [f"e-{n}" for n in range(3 * MOST_MESSAGES)]
    assert [e.id for e in error.confirmed] == chunk[:MOST_MESSAGES]
    assert [e.id for e in error.uncertain] == chunk[MOST_MESSAGES : 2 * MOST_MESSAGES]
    assert [e.id for e in error.unsent] == chunk[2 * MOST_MESSAGES :]
    assert list(error.reasons) == chunk[MOST_MESSAGES : 2 * MOST_MESSAGES], "tried in vain"
    app.publish_many(error.unconfirmed)
    messages = take(app)
    assert set(ids(messages)) == set(chunk), "none is missing"
    assert len({message.headers["id"] for message in messages}) == len(chunk), "each has one id"


@pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])
def test_a_connection_lost_half_way_is_made_again(request, proxied, broker):
    app, proxy = proxied(request.getfixturevalue(broker))
    app.publish_many(events(1))
    take(app)
    proxy.lose_replies(f"e-{MOST_MESSAGES + 10}".encode())
    app.publish_many(events(2 * MOST_MESSAGES))
    assert set(ids(take(app))) == {f"e-{n}" for n in range(2 * MOST_MESSAGES)}


def test_what_a_full_redis_refused_is_unsent_for_certain(make_app, make_redis):
    server = make_redis(options={"maxmemory": "3mb", "maxmemory-policy": "noeviction"})
    app = make_app(broker=server.url)
    large = [Publication({"x": "y" * 20_000}, type="placed", id=f"e-{n}") for n in range(200)]
    with pytest.raises(NotAllPublished, match="maxmemory") as caught:
        app.publish_many(large)
    error = caught.value
    waiting = server.client().llen(app.conf.task_default_queue)
    assert 0 < waiting < 200
    assert len(error.confirmed) == waiting
    assert error.uncertain == ()
    assert len(error.unsent) == 200 - waiting
    assert "maxmemory" in str(error.reasons[error.unsent[0].id])
    server.client().config_set("maxmemory", "100mb")
    app.publish_many(error.unconfirmed)
    assert sorted(ids(take(app))) == sorted(f"e-{n}" for n in range(200)), "each exactly once"


def test_a_redis_that_is_away_got_nothing_and_later_gets_all(make_app, make_redis):
    server = make_redis()
    app = make_app(broker=server.url)
    app.publish_many(events(3))
    server.kill()
    with pytest.raises(BrokerUnavailable, match="none of 3 events was sent"):
        app.publish_many(events(3))
    server.start()
    app.publish_many(events(3))
    assert ids(take(app)) == ["e-0", "e-1", "e-2"], "the server came back empty"


# -- RabbitMQ ------------------------------------------------------------------------------------


def depth(app, queue):
    with app.connection_for_read() as connection:
        return queue(connection.default_channel).queue_declare(passive=True).message_count


def test_confirms_that_never_came_are_uncertain(proxied, amqp_url):
    app, proxy = proxied(amqp_url)
    app.publish_many(events(1))
    take(app)
    proxy.lose_replies(b"e-300")
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(events(600), retry=False)
    error = caught.value
    chunk = {f"e-{n}" for n in range(MOST_MESSAGES, 2 * MOST_MESSAGES)}
    assert len(error.confirmed) >= MOST_MESSAGES
    assert {e.id for e in error.uncertain} <= chunk
    assert "e-300" in {e.id for e in error.uncertain}
    assert len(error.confirmed) + len(error.uncertain) + len(error.unsent) == 600
    assert {e.id for e in error.unsent} >= {f"e-{n}" for n in range(2 * MOST_MESSAGES, 600)}
    app.publish_many(error.unconfirmed)
    assert set(ids(take(app))) == {f"e-{n}" for n in range(600)}


def test_a_broker_that_confirms_nothing_is_not_waited_for_for_ever(proxied, amqp_url, monkeypatch):
    app, proxy = proxied(amqp_url)
    app.publish_many(events(1))
    monkeypatch.setattr(confirmed_wire, "PATIENCE", 0.3)
    proxy.lose_replies(b"e-0", cut=False)  # the first: what came before it would be confirmed
    with pytest.raises(NotAllPublished, match=r"confirmed nothing for 0\.3 s") as caught:
        app.publish_many(events(3))
    assert [e.id for e in caught.value.uncertain] == ["e-0", "e-1", "e-2"]


def test_what_a_full_queue_refused_is_unsent_for_certain(rabbitmq, unique_name):
    limits = {"x-max-length": 10, "x-overflow": "reject-publish"}
    queue = Queue(f"{unique_name}-full", queue_arguments=limits)
    rabbitmq.amqp.queues.add(queue)
    with pytest.raises(NotAllPublished, match="is its queue full") as caught:
        rabbitmq.publish_many(events(50), queue=queue.name)
    error = caught.value
    assert error.uncertain == ()
    assert 0 < len(error.confirmed) < 50
    assert len(error.confirmed) + len(error.unsent) == 50
    assert error.reasons.keys() == {event.id for event in error.unsent}
    assert all(reason.passing for reason in error.reasons.values())
    assert ids(take(rabbitmq, queue.name)) == [event.id for event in error.confirmed]


def test_a_queue_that_was_deleted_is_declared_again(rabbitmq):
    rabbitmq.publish_many(events(1))
    queue = rabbitmq.amqp.queues[rabbitmq.conf.task_default_queue]
    with rabbitmq.connection_for_write() as connection:
        queue(connection.default_channel).delete()
    rabbitmq.publish_many(events(5))
    assert ids(take(rabbitmq)) == [f"e-{n}" for n in range(5)]


def test_what_no_queue_takes_is_an_error_and_not_lost(rabbitmq):
    with pytest.raises(BrokerUnavailable, match="no queue takes 'nobody'"):
        rabbitmq.publish_many(
            events(3), exchange="amq.topic", routing_key="nobody", exchange_type="topic"
        )


def test_an_exchange_that_does_not_exist_is_an_error_that_names_it(rabbitmq):
    with pytest.raises(BrokerUnavailable, match="no exchange 'nowhere'"):
        rabbitmq.publish_many(events(3), exchange="nowhere", routing_key="x", exchange_type="topic")


def test_one_message_that_the_broker_cannot_take_costs_the_others_nothing(rabbitmq):
    def forge(headers, properties, **_):
        if headers[names.EVENT_ID] == "e-7":
            properties["user_id"] = "somebody else"  # RabbitMQ closes the channel

    signals.before_task_publish.connect(forge)
    try:
        with pytest.raises(NotAllPublished, match="user_id") as caught:
            rabbitmq.publish_many(events(20))
    finally:
        signals.before_task_publish.disconnect(forge)
    error = caught.value
    assert [e.id for e in error.unsent] == ["e-7"]
    assert error.uncertain == ()
    (reason,) = error.reasons.values()
    assert (reason.event_id, reason.refused, reason.passing) == ("e-7", True, False)
    found = ids(take(rabbitmq))
    assert set(found) == {event.id for event in error.confirmed}
    assert len(error.confirmed) == 19


def test_a_queue_of_another_kind_costs_other_handlers_nothing(rabbitmq, unique_name):
    other = Queue(f"{unique_name}-two", queue_arguments={"x-queue-type": "classic"})
    with rabbitmq.connection_for_write() as connection:
        other(connection.default_channel).declare()
    rabbitmq.handler("placed", name="two", queue=other.name)(ignore)
    with pytest.raises(NotAllPublished, match="PRECONDITION_FAILED") as caught:
        rabbitmq.publish_many(events(3))
    assert caught.value.missing == ("two",)
    assert len(caught.value.uncertain) == 3
    assert all(reason.refused for reason in caught.value.reasons.values())
    assert ids(take(rabbitmq)) == ["e-0", "e-1", "e-2"]


def test_a_rabbitmq_that_is_away_got_nothing(proxied, amqp_url):
    app, proxy = proxied(amqp_url)
    app.publish_many(events(1))
    proxy.cut()
    with pytest.raises(BrokerUnavailable, match="none of 3 events was sent"):
        app.publish_many(events(3))
    proxy.mend()
    app.publish_many(events(3))
    assert sorted(ids(take(app))) == ["e-0", "e-0", "e-1", "e-2"]


def channels_of(app):
    with app.producer_pool.acquire() as producer:
        producer.channel  # noqa: B018 - connects
        return producer.connection.connection.channels


def test_batches_of_a_connection_share_a_channel(rabbitmq):
    channels = channels_of(rabbitmq)
    for _ in range(5):
        rabbitmq.publish_many(events(3))
    assert len(channels) == 3, "the connection itself, the producer's channel, and that of batches"
    assert len(take(rabbitmq)) == 15


@pytest.mark.parametrize("user", ["guest", "somebody else"])
def test_batches_that_are_refused_leave_no_channels_behind(rabbitmq, unique_name, user):
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    full = f"{unique_name}-full"
    queue = Queue(full, routing_key=full, queue_arguments=limits)
    rabbitmq.amqp.queues.add(queue)
    channels = channels_of(rabbitmq)
    for _ in range(5):
        with pytest.raises(PublishError):
            rabbitmq.publish_many(events(20), queue=queue.name, user_id=user)
    assert len(channels) <= 3
    rabbitmq.publish_many(events(3))
    assert ids(take(rabbitmq)) == ["e-0", "e-1", "e-2"]
