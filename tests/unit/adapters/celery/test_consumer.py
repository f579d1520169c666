"""The consumer in a worker's parent: what it holds back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.consumer import RoadConsumer


class Hub:
    """Timers that a test fires by hand, and calls that are made at once."""

    def __init__(self):
        self.timers = []
        self.timer = SimpleNamespace(queue=())

    def call_repeatedly(self, _seconds, call):
        self.timers.append(call)

    def call_soon(self, call):
        call()


@pytest.fixture
def app(make_app):
    app = make_app(facts={"log": False})

    @app.task(name="t")
    def t(*args):
        """Do nothing."""

    app.begin_work()
    yield app
    app.end_work()


@pytest.fixture
def consumer(app):
    app.finalize(auto=True)
    controller = SimpleNamespace(app=app, semaphore=None, use_eventloop=True)
    made = RoadConsumer(
        lambda _request: None, app=app, hub=Hub(), controller=controller,
        pool=SimpleNamespace(is_green=False), timer=None, hostname="h",
    )  # fmt: skip
    made.connection_errors = (OSError,)
    return made


def test_a_queue_that_was_closed_before_a_new_connection_is_opened_after_it(app, consumer):
    @app.handler("Order", domain="order", name="o", queue="orders")
    def order(event: dict) -> None:
        """Do nothing."""

    app.held_domains.begin(["order"])
    consumed = {"orders"}
    consumer.task_consumer = SimpleNamespace(consuming_from=consumed.__contains__)
    consumer.cancel_task_queue = consumed.discard
    consumer.add_task_queue = consumed.add

    def turn():
        consumer.register_with_event_loop(consumer.hub)  # as with every new connection
        consumer.hub.timers.pop()()

    app.held_domains.hold("order", datetime.now(UTC) + timedelta(minutes=1))
    turn()
    assert consumed == set()
    app.held_domains.hold("order", datetime.now(UTC) - timedelta(minutes=1))
    turn()
    assert consumed == {"orders"}
