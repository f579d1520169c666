"""Who gets an event: everybody registered or routed, each once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.handlers import (
    Handler,
    Handlers,
    Subscription,
    check_data,
    check_place,
    in_domain,
    subscriptions,
)
from angzarr.errors import DecodeError, EventDoesNotFit
from angzarr.events.event import Event
from angzarr.ordering.lane import Order

NAMES = st.sampled_from(["a", "b", "c", "d"])


def registry(*names, queue=None):
    handlers = Handlers()
    for name in names:
        handlers.add(Handler(name=name, bind=lambda *_: None, event_type="T", queue=queue))
    return handlers


def test_nobody_is_nobody():
    assert subscriptions("T", None, Handlers(), {}) == []
    assert subscriptions("U", None, registry("a"), {"T": [Subscription("b")]}) == []


def test_a_publisher_need_not_import_the_handlers():
    assert subscriptions("T", None, Handlers(), {"T": [Subscription("crm.sync", "crm")]}) == [
        Subscription("crm.sync", "crm")
    ]


def test_a_route_moves_a_registered_handler_to_its_queue():
    found = subscriptions("T", None, registry("a", queue="old"), {"T": [Subscription("a", "new")]})
    assert found == [Subscription("a", "new")]


def test_a_handlers_own_queue_counts_where_no_route_says_otherwise():
    assert subscriptions("T", None, registry("a", queue="own"), {}) == [Subscription("a", "own")]


def of(name, compensation=None, event_type="T"):
    return Handler(
        name=name, bind=lambda *_: None, event_type=event_type, compensation=compensation
    )


def test_what_undoes_a_handler_does_not_take_what_that_one_takes():
    handlers = Handlers()
    for handler in (of("undo"), of("do", "undo"), of("other", "redo", "U"), of("redo")):
        handlers.add(handler)
    assert subscriptions("T", None, handlers, {}) == [Subscription("do"), Subscription("redo")]
    routed = subscriptions("T", None, handlers, {"T": [Subscription("undo", "q")]})
    assert Subscription("undo", "q") in routed, "somebody says so"


@given(st.lists(NAMES, unique=True), st.lists(NAMES))
def test_everybody_gets_it_once(registered, routed):
    routes = {"T": [Subscription(name, "q") for name in routed]}
    found = [one.handler for one in subscriptions("T", None, registry(*registered), routes)]
    assert sorted(found) == sorted({*registered, *routed})


# -- ordered handlers --------------------------------------------------------------------------


def refuse(data):
    if data != {}:
        msg = "not empty"
        raise DecodeError(msg)


def ordered(name, *domains, types=("T",), first=0, **more):
    order = Order(domains=frozenset(domains), types=frozenset(types), first=first)
    return Handler(name=name, bind=lambda *_: None, order=order, domain=domains[0], **more)


def handlers_of(*registered):
    handlers = Handlers()
    for handler in registered:
        handlers.add(handler)
    return handlers


def who(event_type, domain, handlers, routes=None):
    return [one.handler for one in subscriptions(event_type, domain, handlers, routes or {})]


def event(**more):
    return Event(**{"id": "e", "type": "T", "data": {}, "domain": "order", **more})


def test_an_ordered_handler_gets_every_event_of_its_domains_and_no_other():
    handlers = handlers_of(of("a"), ordered("b", "order", "shop"), ordered("c", "shop"))
    assert who("T", "order", handlers) == ["a", "b"]
    assert who("U", "order", handlers) == ["b"]
    assert who("U", "shop", handlers) == ["b", "c"]
    assert who("T", "crm", handlers) == who("T", None, handlers) == ["a"]


def test_a_route_may_name_all_events_of_a_domain():
    routes = {"order/*": [Subscription("far", "q")], "T": [Subscription("near")]}
    assert who("T", "order", Handlers(), routes) == ["far", "near"]
    assert who("U", "order", Handlers(), routes) == ["far"]
    assert who("T", "shop", Handlers(), routes) == who("T", None, Handlers(), routes) == ["near"]


def test_of_two_routes_to_one_handler_that_of_the_type_wins():
    routes = {"T": [Subscription("far", "own")], "order/*": [Subscription("far", "all")]}
    assert subscriptions("T", "order", Handlers(), routes) == [Subscription("far", "own")]
    assert subscriptions("U", "order", Handlers(), routes) == [Subscription("far", "all")]


def test_a_route_of_the_type_moves_an_ordered_handler_and_brings_it_no_other_domain():
    handlers = handlers_of(ordered("b", "order"))
    routes = {"T": [Subscription("b", "q")]}
    assert subscriptions("T", "order", handlers, routes) == [Subscription("b", "q")]
    assert who("T", "shop", handlers, routes) == who("T", None, handlers, routes) == []


def test_what_undoes_an_ordered_handler_takes_the_type_of_no_domain():
    handlers = handlers_of(of("undo"), ordered("b", "order", compensation="undo"))
    assert who("T", "order", handlers) == ["b"]
    assert who("T", "shop", handlers) == []


def test_an_event_without_a_domain_is_of_that_from_which_ordered_handlers_take_it():
    handlers = handlers_of(ordered("b", "order"), ordered("c", "order", types=("T", "U")))
    bare = event(domain=None)
    assert in_domain(bare, handlers) == event()
    assert in_domain(event(domain="shop"), handlers).domain == "shop"
    assert in_domain(bare, handlers_of(of("a"))) is bare
    assert in_domain(event(domain=None, type="V"), handlers).domain is None


def test_an_event_that_may_be_of_two_domains_must_say_which():
    handlers = handlers_of(ordered("b", "shop"), ordered("c", "order"))
    with pytest.raises(EventDoesNotFit, match=r"domains order, shop.*publish it with domain=…"):
        in_domain(event(domain=None), handlers)
    assert in_domain(event(), handlers) == event()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "no root and no sequence: publish it with domain, root and sequence"),
        ({"root": "r"}, "says no sequence"),
        ({"sequence": 1}, "says no root"),
        ({"root": "r", "sequence": 0}, "first_sequence"),
        ({"root": "", "sequence": 1}, "root must have 1 to 255"),
        ({"root": "r", "sequence": 1, "edition": "\n"}, "edition"),
        ({"type": "U"}, "no root and no sequence"),
    ],
)
def test_an_event_without_a_place_is_refused(said, why):
    handlers = handlers_of(of("a"), ordered("b", "order", first=1))
    with pytest.raises(EventDoesNotFit, match=why):
        check_place(event(**said), handlers)
    check_place(event(root="r", sequence=1, edition="e"), handlers)
    check_place(event(domain="shop"), handlers)


def test_an_ordered_handler_reads_the_data_of_its_types_only():
    handlers = handlers_of(ordered("b", "order", decode=refuse))
    with pytest.raises(EventDoesNotFit, match="not empty; b could not take it"):
        check_data(event(data=1), handlers)
    check_data(event(), handlers)
    check_data(event(type="U", data=1), handlers)
    check_data(event(domain="shop", data=1), handlers)


@given(st.lists(NAMES, unique=True), st.lists(NAMES), st.lists(NAMES))
def test_everybody_ordered_gets_it_once_too(registered, routed, for_all):
    handlers = handlers_of(*(ordered(name, "order") for name in registered))
    routes = {
        "T": [Subscription(name, "q") for name in routed],
        "order/*": [Subscription(name, "w") for name in for_all],
    }
    assert sorted(who("T", "order", handlers, routes)) == sorted({*registered, *routed, *for_all})
