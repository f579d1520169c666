"""A queue is not consumed while everything that it serves is held back.

Celery's own consumer and queues, over a broker in memory.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.worker.consumer import AngzarrConsumer


@pytest.fixture
def held():
    """Why handlers are held back, by name."""
    return {}


@pytest.fixture
def app(make_app, monkeypatch, held):
    app = make_app(facts={"log": False})
    app.conf.task_default_queue = "default"
    for name, queue in (("a", "orders"), ("b", "orders"), ("c", "others"), ("d", None)):
        app.handler(f"Of{name}", name=name, queue=queue)(_nothing)
    app.finalize(auto=True)
    monkeypatch.setattr(app, "holding", lambda: lambda handler: held.get(handler.name))
    return app


def _nothing(event: dict) -> None:
    """Do nothing."""


@pytest.fixture
def worker(app):
    """A worker's consumer that consumes from two queues."""
    app.amqp.queues.select(["orders", "default"])
    with app.connection_for_read() as connection:
        made = AngzarrConsumer(
            lambda _request: None, app=app, timer=None, hostname="h", hub=SimpleNamespace(),
            pool=SimpleNamespace(is_green=False),
            controller=SimpleNamespace(app=app, semaphore=None, use_eventloop=True),
        )  # fmt: skip
        made.connection = connection
        connect(made)
        yield made


def connect(worker):
    """Consume as Celery does with each new connection."""
    worker.task_consumer = worker.app.amqp.TaskConsumer(worker.connection)
    worker.task_consumer.consume()


def consumed(worker):
    tags = worker.task_consumer._active_tags
    return {queue for queue in ("orders", "others", "default", "more") if queue in tags}


def turn(worker):
    worker._queue_pauser.turn()


def test_a_queue_is_closed_while_all_it_serves_is_held_and_opened_afterwards(worker, held, caplog):
    held |= {"a": "breaker crm is open", "b": "domain order is held back", "c": "so"}
    turn(worker)
    assert consumed(worker) == {"default"}
    assert "breaker crm is open, domain order is held back" in caplog.text
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}, "and not one that it never consumed"


def test_a_queue_that_serves_another_too_is_consumed(worker, held):
    held["a"] = "breaker crm is open"
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def test_what_is_closed_stays_so_with_the_next_connection(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    connect(worker)
    assert consumed(worker) == {"default"}
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def test_a_queue_that_an_operator_stopped_stays_stopped(worker, held):
    worker.cancel_task_queue("orders")
    held |= {"a": "so", "b": "so"}
    turn(worker)
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default"}


def test_a_queue_that_an_operator_stops_while_it_is_closed_stays_stopped(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    worker.cancel_task_queue("orders")
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default"}


def test_a_queue_that_an_operator_resumes_is_closed_again_and_opened_when_it_is_time(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    worker.add_task_queue("orders")
    assert consumed(worker) == {"default", "orders"}
    turn(worker)
    assert consumed(worker) == {"default"}
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def _lost(*_, **__):
    raise ConnectionResetError


def lose_broker(worker, monkeypatch, verb):
    """Turn the valve while the broker is lost, then connect anew."""
    with monkeypatch.context() as patch:
        patch.setattr(worker.task_consumer.channel, verb, _lost)
        with pytest.raises(ConnectionResetError):
            turn(worker)
    connect(worker)


def test_a_queue_is_opened_though_the_broker_was_lost_while_it_was_closed(
    worker, held, monkeypatch
):
    held |= {"a": "so", "b": "so"}
    lose_broker(worker, monkeypatch, "basic_cancel")
    assert consumed(worker) == {"default"}
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def test_a_queue_is_closed_again_though_the_broker_was_lost_while_it_was_opened(
    worker, held, monkeypatch
):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    held.clear()
    lose_broker(worker, monkeypatch, "basic_consume")
    assert consumed(worker) == {"default", "orders"}
    held |= {"a": "so", "b": "so"}
    turn(worker)
    assert consumed(worker) == {"default"}


def test_a_worker_that_stops_consumes_nothing_anew(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    held.clear()
    worker.app.stopping.begin()
    turn(worker)
    assert consumed(worker) == {"default"}
