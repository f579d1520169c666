"""What every worker reads is looked at first, and dropped if it is odd; events never block."""

from __future__ import annotations

import bz2
import json
import logging
import tracemalloc
from types import SimpleNamespace

import pytest
from amqp.exceptions import ConnectionForced
from kombu import Consumer, Producer

from angzarr import Angzarr
from angzarr.adapters.celery.worker import broadcasts
from angzarr.adapters.celery.worker.broadcasts import MOST_WAITING, ONCE, BroadcastQueue, heed
from angzarr.runtime.failures import LogThrottle

GOOD = {"method": "ping", "arguments": {}, "destination": None}
LISTS = b"[" + b"[]," * 2_000_000 + b"[]]"
LEVELS = b"[" * 100_000 + b"]" * 100_000
JSON = "application/json"
#: body, content type, encoding, headers
ODD = {
    "too many values": (LISTS, JSON, "utf-8", {}),
    "too many levels": (LEVELS, JSON, "utf-8", {}),
    "packed": (bz2.compress(LISTS, 1), JSON, "utf-8", {"compression": "bzip2"}),
    "packed badly": (b"xyz", JSON, "utf-8", {"compression": "bzip2"}),
    "packed by nobody": (b"xyz", JSON, "utf-8", {"compression": "x"}),
    "no JSON": (b"{", JSON, "utf-8", {}),
    "no text": (b"\xff", JSON, "utf-8", {}),
    "pickle": (b"\x80\x04N.", "application/x-python-serialize", "binary", {}),
    "a codec that unpacks": (bz2.compress(b"x"), "text/plain", "bz2", {}),
    "a number": (b"5", JSON, "utf-8", {}),
    "nothing": (b"", JSON, "utf-8", {}),
    "a list of numbers": (b"[5]", JSON, "utf-8", {}),
    "a clock of text": (json.dumps(GOOD).encode(), JSON, "utf-8", {"clock": "9"}),
    "a clock without end": (json.dumps(GOOD).encode(), JSON, "utf-8", {"clock": float("inf")}),
    "a clock of many digits": (
        json.dumps({**GOOD, "clock": 10**400}).encode(), JSON, "utf-8", {}
    ),
}  # fmt: skip


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setattr(broadcasts, "_SELDOM", LogThrottle())
    app = Angzarr("cast", broker="memory://cast", backend="cache+memory://")
    yield app
    app.close()


@pytest.fixture(params=["commands", "answers", "events"])
def queue(app, request):
    """What a worker's parent reads besides its tasks."""
    with app.connection_for_read() as connection:
        if request.param == "events":
            yield app.events.Receiver(connection.channel(), routing_key="worker.#").queue
        elif request.param == "answers":
            yield app.control.mailbox(connection).reply_queue
        else:
            yield app.control.mailbox(connection).get_queue("here@host")


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_dropped_before_it_is_parsed_and_the_next_is_heard(app, queue, name, caplog):
    body, content_type, encoding, headers = ODD[name]
    heard, failed = [], []
    with app.connection_for_read() as connection:
        channel = connection.channel()
        consumer = Consumer(
            channel, [queue], callbacks=[lambda body, _message: heard.append(body)], no_ack=True,
            on_decode_error=lambda *what: failed.append(what),
        )  # fmt: skip
        producer = Producer(channel)
        with consumer:
            for told in (body, body, json.dumps(GOOD).encode()):
                odd = told is body
                producer.publish(
                    told, routing_key=queue.name,
                    content_type=content_type if odd else JSON,
                    content_encoding=encoding if odd else "utf-8",
                    headers=dict(headers) if odd else {"clock": 3},
                )  # fmt: skip
            tracemalloc.start()
            try:
                for _ in range(3):
                    connection.drain_events(timeout=5)
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert (heard, failed) == ([GOOD], [])
    assert most < 8 * len(LISTS), "it costs its bytes, and not what it stands for"
    said = [one.getMessage() for one in caplog.records if "broadcast_dropped" in one.getMessage()]
    assert len(said) == 1
    assert queue.name in said[0]


def test_every_copy_of_such_a_queue_is_bounded(queue, app):
    with app.connection_for_read() as connection:
        bound = queue(connection.channel())
        assert isinstance(bound, BroadcastQueue)
        assert bound.bounds == app.settings.message.bounds


def test_what_gossip_cannot_act_upon_is_dropped(caplog, monkeypatch):
    monkeypatch.setattr(broadcasts, "_SELDOM", LogThrottle())

    def act(error):
        raise error

    for _ in range(3):
        heed(act, TypeError("no hostname"))
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    with pytest.raises(ConnectionForced):
        heed(act, ConnectionForced())


class Away:
    """A producer whose broker is away, which notes how often it would be tried."""

    def __init__(self) -> None:
        self.asked = []

    def publish(self, _event, *, retry, retry_policy, **_more):
        self.asked.append((retry, retry_policy))
        raise ConnectionResetError


def test_a_heartbeat_is_tried_once_more_and_put_aside(app):
    connection = SimpleNamespace(transport=SimpleNamespace(driver_type="redis"))
    dispatcher = app.events.Dispatcher(connection, enabled=False)
    away = Away()
    for _ in range(MOST_WAITING + 5):
        dispatcher.publish("worker-heartbeat", {}, away, retry=True)
    assert away.asked[0] == (True, dict(ONCE))
    assert len(dispatcher._outbound_buffer) == MOST_WAITING
