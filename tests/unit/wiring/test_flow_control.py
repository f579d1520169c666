"""By which rules a breaker around a call counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from angzarr.delivery.context import RUNNING
from angzarr.delivery.handlers import Handler
from angzarr.resilience.category import Category
from angzarr.resilience.taxonomy import Rule
from angzarr.wiring import flow_control as flow


@pytest.mark.parametrize("own", [True, False], ids=["handler's", "app's"])
def test_rules_for_an_event_type_count_in_the_calls_of_its_deliveries(own):
    ill = Rule(matches=LookupError, category=Category.EXTERNAL, event_type="order")
    handler = Handler(name="shop.sync", bind=None, rules=(ill,) if own else ())
    app = SimpleNamespace(rules=() if own else (ill,))
    guard = flow.guard_of(app, lambda: app._parts.flow, handler, "crm")
    assert not guard.is_ill(LookupError())
    for type_ in ("order", "invoice"):
        running = RUNNING.set(SimpleNamespace(event=SimpleNamespace(type=type_)))
        assert guard.is_ill(LookupError()) is (type_ == "order")
        RUNNING.reset(running)
