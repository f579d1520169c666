"""A publish waits for one answer of the broker, and asks no other server anything."""

from __future__ import annotations

import socket

import pytest
from kombu.transport import pyamqp
from tests.apps import apps

from angzarr import Publication


def ignore(event):
    """Handle it."""


@pytest.fixture
def make_app(unique_name):
    def prepare(app):
        app.conf.task_default_queue = unique_name
        app.handler("placed", name="one")(ignore)

    nowhere = {"store": "redis://127.0.0.1:1", "ledger": "sqlite:////nowhere/ledger"}
    with apps(prepare, **nowhere) as make:
        yield make


def publish(app):
    app.publish({"n": 1}, type="placed")


def commands_of(server, call):
    """What Redis was asked while *call* ran, and how often."""
    with server.client() as client:
        client.config_resetstat()
        call()
        told = client.info("commandstats")
    asked = {name.removeprefix("cmdstat_"): one["calls"] for name, one in told.items()}
    return {
        name: count for name, count in asked.items() if name not in ("info", "config|resetstat")
    }


def test_on_redis_a_publish_is_one_command(make_app, make_redis):
    server = make_redis()
    app = make_app(broker=server.url)
    publish(app)  # connects, and declares the queue
    assert commands_of(server, lambda: publish(app)) == {"lpush": 1}


def test_on_redis_many_are_a_look_whether_it_is_there_and_one_pipeline(make_app, make_redis):
    server = make_redis()
    app = make_app(broker=server.url)
    publish(app)
    many = [Publication({"n": n}, type="placed") for n in range(100)]
    assert commands_of(server, lambda: app.publish_many(many)) == {"ping": 1, "lpush": 100}


@pytest.fixture
def frames(monkeypatch):
    """What py-amqp wrote and what it read, as frames of RabbitMQ, while it is asked for."""
    noted = []
    write, read = pyamqp.Channel.send_method, pyamqp.Channel.dispatch_method

    def send_method(channel, sig, *args, **options):
        noted.append(("sent", sig))
        return write(channel, sig, *args, **options)

    def dispatch_method(channel, sig, *args, **options):
        noted.append(("heard", sig))
        return read(channel, sig, *args, **options)

    monkeypatch.setattr(pyamqp.Channel, "send_method", send_method)
    monkeypatch.setattr(pyamqp.Channel, "dispatch_method", dispatch_method)
    return noted


PUBLISH, ACK = ("sent", (60, 40)), ("heard", (60, 80))


def test_on_rabbitmq_a_publish_is_one_message_and_its_confirm(make_app, amqp_url, frames):
    app = make_app(broker=amqp_url)
    publish(app)
    frames.clear()
    publish(app)
    assert frames == [PUBLISH, ACK]


def test_on_rabbitmq_many_are_their_messages_and_confirms_and_nothing_else(
    make_app, amqp_url, frames
):
    app = make_app(broker=amqp_url)
    many = [Publication({"n": n}, type="placed") for n in range(100)]
    app.publish_many(many)
    frames.clear()
    app.publish_many(many)
    assert frames.count(PUBLISH) == 100
    assert set(frames) == {PUBLISH, ACK}, "no channel is opened, and no queue declared"


def test_a_publish_opens_no_connection_but_the_brokers(make_app, amqp_url, monkeypatch):
    app = make_app(broker=amqp_url)
    publish(app)
    opened = []
    monkeypatch.setattr(socket.socket, "connect", lambda _own, address: opened.append(address))
    publish(app)
    app.publish_many([{"n": 1}, {"n": 2}], type="placed")
    assert opened == []
