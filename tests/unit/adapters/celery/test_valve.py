"""A queue is not consumed while everything that it serves is held back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.valve import Valve, handlers_of_queues
from angzarr.delivery.handlers import Handler, Handlers


def handlers(*given):
    made = Handlers()
    for name, queue in given:
        made.add(Handler(name=name, bind=None, queue=queue))
    return made


class Consumer:
    def __init__(self, made, consumed):
        self.app = SimpleNamespace(
            handlers=made, conf=SimpleNamespace(task_default_queue="default")
        )
        self.consumed = set(consumed)
        self.task_consumer = SimpleNamespace(consuming_from=self.consumed.__contains__)

    def cancel_task_queue(self, queue):
        self.consumed.discard(queue)

    def add_task_queue(self, queue):
        self.consumed.add(queue)


@pytest.fixture
def consumer():
    made = handlers(("a", "orders"), ("b", "orders"), ("c", "others"), ("d", None))
    return Consumer(made, {"orders", "default"})


@pytest.fixture
def held():
    return {}


@pytest.fixture
def valve(consumer, held):
    return Valve(consumer, lambda: lambda handler: held.get(handler.name))


def test_a_queue_serves_its_handlers_and_the_default_queue_the_rest():
    made = handlers(("a", "orders"), ("b", None), ("celery.ping", None))
    served = handlers_of_queues(made, "default")
    assert {queue: [one.name for one in found] for queue, found in served.items()} == {
        "orders": ["a"], "default": ["b"]
    }  # fmt: skip


def test_a_queue_is_closed_while_all_it_serves_is_held_and_opened_afterwards(
    valve, consumer, held, caplog
):
    held |= {"a": "breaker crm is open", "b": "domain order is held back", "c": "so"}
    valve.turn()
    assert consumer.consumed == {"default"}
    assert "breaker crm is open, domain order is held back" in caplog.text
    held.clear()
    valve.turn()
    assert consumer.consumed == {"default", "orders"}, "and not one that it never consumed"


def test_a_queue_that_serves_another_too_is_consumed(valve, consumer, held):
    held["a"] = "breaker crm is open"
    valve.turn()
    assert consumer.consumed == {"default", "orders"}


def test_a_queue_that_an_operator_stopped_stays_stopped(valve, consumer, held):
    consumer.cancel_task_queue("orders")
    held |= {"a": "so", "b": "so"}
    valve.turn()
    held.clear()
    valve.turn()
    assert consumer.consumed == {"default"}
