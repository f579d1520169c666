"""What holds a handler back as a whole, so that its queue need not be consumed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from angzarr import flow
from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.delivery.handlers import Handler
from angzarr.resilience.switches import Action, Selector

PAUSE, DROP = Action.PAUSE, Action.DROP
SYNC = Handler(name="shop.sync", bind=None, event_type="order", domain="sales")


@pytest.fixture
def app():
    return SimpleNamespace(
        held_domains=SimpleNamespace(now=set),
        flow=SimpleNamespace(breakers=InProcessBreakers(), switches=InProcessSwitches()),
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
