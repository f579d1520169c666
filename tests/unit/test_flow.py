"""What holds a handler back as a whole, and by which rules a breaker around a call counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from angzarr import flow
from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.delivery.context import RUNNING
from angzarr.delivery.handlers import Handler
from angzarr.resilience.category import Category
from angzarr.resilience.switches import Action, Selector
from angzarr.resilience.taxonomy import Rule

PAUSE, DROP = Action.PAUSE, Action.DROP
SYNC = Handler(name="shop.sync", bind=None, event_type="order", domain="sales")


@pytest.fixture
def app():
    return SimpleNamespace(
        held_domains=SimpleNamespace(now=set),
        flow=SimpleNamespace(breakers=InProcessBreakers(), switches=InProcessSwitches()),
        rules=(),
        settings=SimpleNamespace(flow=SimpleNamespace(pausing=lambda _name: True)),
    )


@pytest.mark.parametrize(
    "selector",
    [
        Selector(),
        Selector(handler="shop.sync"),
        Selector(handler="shop.*"),
        Selector(event_type="order"),
        Selector(domain="sales"),
        Selector(handler="shop.sync", event_type="order", domain="sales"),
    ],
    ids=str,
)
def test_a_pause_of_all_that_a_handler_takes_holds_it_back(app, selector):
    put = app.flow.switches.put(selector, PAUSE, by="ada", reason="why")
    assert "paused by ada: why" in flow.holding(app)(SYNC)
    app.flow.switches.resume([put.id], by="ada")
    assert flow.holding(app)(SYNC) is None


@pytest.mark.parametrize(
    ("selector", "action"),
    [
        (Selector(tenant="acme"), PAUSE),
        (Selector(handler="shop.sync", tenant="acme"), PAUSE),
        (Selector(handler="shop.sync", event_type="other"), PAUSE),
        (Selector(domain="other"), PAUSE),
        (Selector(handler="shop.sync"), DROP),
    ],
    ids=str,
)
def test_what_is_about_some_deliveries_or_drops_them_holds_no_handler_back(app, selector, action):
    app.flow.switches.put(selector, action, by="ada", reason="why")
    assert flow.holding(app)(SYNC) is None


@pytest.mark.parametrize("own", [True, False], ids=["handler's", "app's"])
def test_rules_for_an_event_type_count_in_the_calls_of_its_deliveries(app, own):
    ill = Rule(matches=LookupError, category=Category.EXTERNAL, event_type="order")
    handler = replace(SYNC, rules=(ill,) if own else ())
    app.rules = () if own else (ill,)
    guard = flow.guard_of(app, handler, "crm")
    assert not guard.is_ill(LookupError())
    for type_ in ("order", "invoice"):
        running = RUNNING.set(SimpleNamespace(event=SimpleNamespace(type=type_)))
        assert guard.is_ill(LookupError()) is (type_ == "order")
        RUNNING.reset(running)
