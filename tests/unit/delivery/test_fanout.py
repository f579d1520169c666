"""Who gets an event: everybody registered or routed, each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.fanout import Subscription, subscriptions
from angzarr.delivery.handlers import Handler, Handlers

NAMES = st.sampled_from(["a", "b", "c", "d"])


def registry(*names, queue=None):
    handlers = Handlers()
    for name in names:
        handlers.add(Handler(name=name, bind=lambda *_: None, event_type="T", queue=queue))
    return handlers


def test_nobody_is_nobody():
    assert subscriptions("T", Handlers(), {}) == []
    assert subscriptions("U", registry("a"), {"T": [Subscription("b")]}) == []


def test_a_publisher_need_not_import_the_handlers():
    assert subscriptions("T", Handlers(), {"T": [Subscription("crm.sync", "crm")]}) == [
        Subscription("crm.sync", "crm")
    ]


def test_a_route_moves_a_registered_handler_to_its_queue():
    found = subscriptions("T", registry("a", queue="old"), {"T": [Subscription("a", "new")]})
    assert found == [Subscription("a", "new")]


def test_a_handlers_own_queue_counts_where_no_route_says_otherwise():
    assert subscriptions("T", registry("a", queue="own"), {}) == [Subscription("a", "own")]


def of(name, compensation=None, event_type="T"):
    return Handler(
        name=name, bind=lambda *_: None, event_type=event_type, compensation=compensation
    )


def test_what_undoes_a_handler_does_not_take_what_that_one_takes():
    handlers = Handlers()
    for handler in (of("undo"), of("do", "undo"), of("other", "redo", "U"), of("redo")):
        handlers.add(handler)
    assert subscriptions("T", handlers, {}) == [Subscription("do"), Subscription("redo")]
    routed = subscriptions("T", handlers, {"T": [Subscription("undo", "q")]})
    assert Subscription("undo", "q") in routed, "somebody says so"


@given(st.lists(NAMES, unique=True), st.lists(NAMES))
def test_everybody_gets_it_once(registered, routed):
    routes = {"T": [Subscription(name, "q") for name in routed]}
    found = [one.handler for one in subscriptions("T", registry(*registered), routes)]
    assert sorted(found) == sorted({*registered, *routed})
