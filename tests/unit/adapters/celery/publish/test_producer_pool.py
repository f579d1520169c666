"""A publisher waits a bounded time for a connection, whatever way it publishes."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from tests.apps import apps

from angzarr.adapters.celery.memory_transport import memory_broker
from angzarr.adapters.celery.publish.publisher import CeleryPublisher
from angzarr.errors import PublishError
from angzarr.events.event import Message

MESSAGE = Message(
    body=b"[[], {}, {}]", content_type="application/json", content_encoding="utf-8",
    headers={"id": "task-1", "task": "handler"}, queue="celery", priority=0, properties={},
)  # fmt: skip


def handler(event):
    """Handle it."""


@pytest.fixture
def app(unique_name):
    with apps(broker=f"memory://{unique_name}", store="memory://") as make:
        app = make()
        app.conf.update(broker_pool_limit=2, broker_pool_acquire_timeout=0.01)
        app.handler("order.placed", name="handler", domain="order")(handler)
        app.finalize()
        yield app


WAYS = {
    "an event": lambda app: app.publish({"n": 1}, type="order.placed"),
    "many events": lambda app: app.publish_many([{"n": 1}, {"n": 2}], type="order.placed"),
    "a task": lambda app: app.tasks["handler"].apply_async(args=[{}]),
    "a raw message": lambda app: CeleryPublisher(app).publish(MESSAGE),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lent", ["producers", "connections"])
def test_a_publisher_is_told_when_all_connections_are_in_use(app, unique_name, way, lent):
    pool = app.producer_pool if lent == "producers" else app.pool
    with ExitStack() as busy:
        for _ in range(app.conf.broker_pool_limit):
            busy.enter_context(pool.acquire(block=True))
        with pytest.raises(PublishError, match=r"(?i)all 2 .* in use"):
            WAYS[way](app)
        assert not any(queue.qsize() for queue in memory_broker(unique_name).queues.values())
    WAYS[way](app)
    assert any(queue.qsize() for queue in memory_broker(unique_name).queues.values())


def test_a_publisher_waits_once_for_producer_and_connection(app, monkeypatch):
    """Another thread has the connection, and the producer comes late."""
    moments = iter([100.0, 100.25, 100.75])
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr("angzarr.adapters.celery.publish.producer_pool.time", clock)
    asked = []
    pool = app.producer_pool
    monkeypatch.setattr(
        pool.connections, "acquire", lambda **how: asked.append(how["timeout"]) or app.connection()
    )
    for timeout in (1.0, None):
        app.conf.broker_pool_acquire_timeout = None
        pool.acquire(block=True, timeout=timeout)
    assert asked == [0.75, None]
