"""A publish after a template is the message that Celery would write, now and after any change."""

from __future__ import annotations

import os

import pytest
from celery import Celery, signals
from kombu import Queue
from tests.apps import apps

from angzarr import Angzarr
from angzarr.adapters.celery.memory_transport import memory_broker
from angzarr.adapters.celery.publish import template_sender
from angzarr.errors import UnserializableEvent
from angzarr.events import headers as names

DATA = {"n": [1, {"ü": None, "deep": [[["x"]]]}], "text": 'it\'s "so" \\'}


def ignore(event):
    """Handle it."""


@pytest.fixture
def make_app(unique_name):
    with apps(broker=f"memory://{unique_name}", store="memory://") as make:
        yield make


@pytest.fixture
def app(make_app):
    app = make_app(routes={"routed": [{"handler": "crm.sync", "queue": "crm"}]})
    app.handler("plain", name="plain", domain="order")(ignore)
    app.handler("queued", name="queued", queue="slow")(ignore)
    app.handler("limited", name="limited", time_limit=9, soft_time_limit=7)(ignore)
    app.handler("urgent", name="urgent")(ignore).priority = 5
    app.handler("expiring", name="expiring", expires=600)(ignore)
    app.finalize()
    return app


@pytest.fixture
def take(unique_name):
    """Take the one message that is on the broker, without what numbers it."""

    def take():
        found = []
        for queue in memory_broker(unique_name).queues.values():
            while queue.qsize():
                found.append(queue.get_nowait())
        (message,) = found
        message["properties"].pop("delivery_tag")
        message["headers"].pop(names.OCCURRED_AT)
        return message

    return take


@pytest.fixture
def drawn(monkeypatch):
    """The names for which Celery wrote a message to make a template of."""
    noted = []
    real = template_sender.TemplateSender._make

    def make(sender, name, options, producer):
        noted.append(name)
        return real(sender, name, options, producer)

    monkeypatch.setattr(template_sender.TemplateSender, "_make", make)
    return noted


class Listening:
    """While somebody listens to Celery's signals, Celery writes each message itself."""

    def __enter__(self):
        signals.before_task_publish.connect(self.heard)

    def __exit__(self, *_):
        signals.before_task_publish.disconnect(self.heard)

    def heard(self, **_told):
        """Do nothing."""


def publish(app, kind="plain", event_id="e-1", **options):
    return app.publish(DATA, type=kind, id=event_id, root="r-1", **options)


def compare(app, take, kind="plain"):
    """Publish both ways and return the message, which must be the same."""
    publish(app, kind)
    ours = take()
    with Listening():
        publish(app, kind)
    assert ours == take()
    return ours


KINDS = ["plain", "queued", "limited", "urgent", "routed"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_message_that_celery_would_write(app, take, kind):
    for _ in range(2):
        message = compare(app, take, kind)
    assert message["headers"]["timelimit"] == ([9, 7] if kind == "limited" else [None, None])


def test_celery_writes_one_message_for_many(app, take, drawn):
    for number in range(5):
        event = publish(app, event_id=f"e-{number}")
        message = take()
        assert message["headers"][names.EVENT_ID] == event.id
        assert message["properties"]["correlation_id"] == message["headers"]["id"]
        assert message["headers"]["root_id"] == message["headers"]["id"]
    assert drawn == ["plain"]


def new_setting(app):
    app.conf.task_repr_maxlevels = 1


def routes_read_anew(app):
    app.conf.task_routes = {"plain": {"queue": "elsewhere"}}
    app.amqp.flush_routes()
    app.amqp.__dict__.pop("router", None)


def queue_declared_in_another_way(app):
    app.amqp.queues.add(Queue(app.conf.task_default_queue, routing_key="other"))


def task_registered_since(app):
    del app._tasks["plain"]
    app.task(ignore, name="plain", lazy=False, time_limit=3)


def new_message_factory(app):
    del app.amqp


CHANGES = [
    new_setting, routes_read_anew, queue_declared_in_another_way, task_registered_since,
    new_message_factory,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_celery_looks_at_is_seen(app, take, drawn, change):
    compare(app, take)
    change(app)
    compare(app, take)
    assert drawn.count("plain") == 2


def test_a_child_says_that_the_message_is_its_own(app, take, drawn, monkeypatch):
    publish(app)
    before = take()["headers"]["origin"]
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    publish(app)
    assert take()["headers"]["origin"] != before
    assert drawn == ["plain", "plain"]


# -- what is left to Celery ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"countdown": 5}, {"expires": 60}], ids=str)
def test_options_of_one_publish_are_celerys_to_write(app, take, drawn, options):
    publish(app, **options)
    take()
    assert drawn == []


def test_what_expires_is_counted_from_each_publish(app, take):
    publish(app, "expiring")
    first = take()["headers"]["expires"]
    publish(app, "expiring")
    assert take()["headers"]["expires"] > first


def test_within_a_task_it_inherits_its_root(app, take):
    @app.task(name="outer", lazy=False)
    def outer():
        publish(app)

    publish(app)
    take()
    outer.apply(task_id="outer-1")
    assert take()["headers"]["parent_id"] == "outer-1"


def test_a_library_that_stands_in_front_of_celery_is_not_passed_by(app, take, monkeypatch):
    seen = []
    real = Celery.send_task

    def send_task(own, name, *args, **options):
        seen.append(name)
        return real(own, name, *args, **options)

    publish(app)
    take()
    monkeypatch.setattr(Celery, "send_task", send_task)
    publish(app)
    take()
    assert seen == ["plain"]


def test_a_subclass_with_its_own_way_to_send_is_not_passed_by(unique_name, take):
    class Counting(Angzarr):
        sent = 0

        def send_task(self, name, *args, **options):
            self.sent += 1
            return super().send_task(name, *args, **options)

    with Counting("shop", broker=f"memory://{unique_name}", set_as_current=False) as app:
        app.handler("plain", name="plain")(ignore)
        for _ in range(2):
            publish(app)
            take()
        assert app.sent == 2


def test_what_cannot_be_json_is_said(app):
    with pytest.raises(UnserializableEvent):
        app.publish({"n": object()}, type="plain")
