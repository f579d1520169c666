"""A domain that is held back stops the queues that serve it alone, and no others."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.held_domains import HeldDomains, Valve, domains_of_queues
from angzarr.delivery.handlers import Handler, Handlers

SOON = timedelta(minutes=1)


@pytest.fixture
def held():
    held = HeldDomains()
    held.begin(["order", "invoice"])
    return held


def now():
    return datetime.now(UTC)


def test_a_domain_is_held_until_its_time(held):
    held.hold("order", now() + SOON)
    held.hold("invoice", now() - SOON)
    assert held.now() == {"order"}


def test_a_domain_that_no_handler_names_has_no_place_and_does_no_harm(held):
    held.hold("unknown", now() + SOON)
    assert held.now() == set()


def test_what_a_child_finds_out_its_parent_sees(held):
    child = os.fork()
    if child == 0:
        held.hold("invoice", now() + SOON)
        os._exit(0)
    os.waitpid(child, 0)
    assert held.now() == {"invoice"}


def handlers(*given):
    made = Handlers()
    for name, domain, queue in given:
        made.add(Handler(name=name, bind=None, domain=domain, queue=queue))
    return made


def test_a_queue_serves_the_domains_of_its_handlers_unless_one_has_none():
    served = domains_of_queues(
        handlers(
            ("a", "order", "orders"), ("b", "invoice", None), ("c", "order", None),
            ("d", "crm", "mixed"), ("e", None, "mixed"), ("celery.ping", None, None),
        ),
        "default",
    )  # fmt: skip
    assert served == {"orders": {"order"}, "default": {"invoice", "order"}}


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
    made = handlers(("a", "order", "orders"), ("b", "order", "others"), ("c", "invoice", None))
    return Consumer(made, {"orders", "default"})


def test_its_queue_is_closed_while_it_is_held_and_opened_afterwards(held, consumer):
    valve = Valve(consumer, held)
    held.hold("order", now() + SOON)
    valve.turn()
    assert consumer.consumed == {"default"}
    held.hold("order", now() - SOON)
    valve.turn()
    assert consumer.consumed == {"default", "orders"}, "and not one that it never consumed"


def test_a_queue_that_an_operator_stopped_stays_stopped(held, consumer):
    valve = Valve(consumer, held)
    consumer.cancel_task_queue("orders")
    held.hold("order", now() + SOON)
    valve.turn()
    held.hold("order", now() - SOON)
    valve.turn()
    assert consumer.consumed == {"default"}
