"""What holds a handler back as a whole, so that its queue need not be consumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.delivery.admission import HeldHandlers
from angzarr.delivery.handlers import Handler
from angzarr.ordering.lane import Order
from angzarr.resilience.breaker_guard import guards
from angzarr.resilience.switches import Selector, SwitchAction

PAUSE, DROP = SwitchAction.PAUSE, SwitchAction.DROP
SYNC = Handler(
    name="shop.sync",
    bind=None,
    event_type="order",
    domain="sales",
    breakers=guards(["ldap", "crm"]),
)


@pytest.fixture
def breakers():
    return InProcessBreakers()


@pytest.fixture
def switches():
    return InProcessSwitches()


@pytest.fixture
def held(breakers, switches):
    """What is held back where only the breaker "crm" pauses queues."""
    return HeldHandlers(switches=switches, breakers=breakers, pausing={"crm"}.__contains__)


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
def test_a_pause_of_all_that_a_handler_takes_holds_it_back(held, switches, selector):
    put = switches.put(selector, PAUSE, by="ada", reason="why")
    assert "paused by ada: why" in held.why(SYNC)
    switches.resume([put.id], by="ada")
    assert held.why(SYNC) is None


def test_a_pause_of_one_type_does_not_hold_back_who_is_sent_all_types(held, switches):
    order = Order(domains=frozenset({"sales"}), types=frozenset({"order"}))
    switches.put(Selector(event_type="order"), PAUSE, by="ada")
    assert held.why(SYNC) is not None
    assert held.why(replace(SYNC, order=order)) is None
    switches.put(Selector(handler="shop.sync"), PAUSE, by="ada")
    assert held.why(replace(SYNC, order=order)) is not None


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
def test_what_is_about_some_deliveries_or_drops_them_holds_no_handler_back(
    held, switches, selector, action
):
    switches.put(selector, action, by="ada", reason="why")
    assert held.why(SYNC) is None


def test_an_open_breaker_that_pauses_queues_holds_back_who_names_it(held, breakers):
    breakers.isolate("ldap", by="ada")
    assert held.why(SYNC) is None, "it pauses no queues"
    breakers.isolate("crm", by="ada")
    assert held.why(SYNC) == "breaker crm is open"
    assert held.why(replace(SYNC, breakers=())) is None
    breakers.reset("crm", by="ada")
    assert held.why(SYNC) is None


def test_a_wave_in_its_domain_holds_it_back_until_it_is_reset(held, breakers):
    breakers.isolate("wave:sales", by="ada")
    assert held.why(SYNC) == "domain sales is held back"
    assert held.why(replace(SYNC, domain="other")) is None
    assert held.why(replace(SYNC, domain=None)) is None
    breakers.reset("wave:sales", by="ada")
    assert held.why(SYNC) is None


def test_a_wave_that_only_a_child_has_seen_holds_it_back(held):
    told = replace(held, domains={"sales"})
    assert told.why(SYNC) == "domain sales is held back"
    assert told.why(replace(SYNC, domain="other")) is None


def test_a_handler_with_a_fallback_runs_while_a_breaker_is_open_but_not_in_a_wave_or_a_pause(
    held, breakers, switches
):
    handler = replace(SYNC, fallback=lambda *_: None)
    breakers.isolate("crm", by="ada")
    assert held.why(handler) is None
    breakers.isolate("wave:sales", by="ada")
    assert held.why(handler) == "domain sales is held back"
    switches.put(Selector(handler="shop.sync"), PAUSE, by="ada", reason="why")
    assert "paused by ada" in held.why(handler)
