"""The handlers of orders.py: what they do, and what becomes of events that they cannot handle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from orders import Line, OrderPaid, OrderPlaced, pack

SECONDS = timedelta(seconds=1)


def placed(**given):
    line = Line(sku="s-1", quantity=2, price=given.pop("price", "4.50"))
    return OrderPlaced(
        order_id="o-1",
        customer_id=given.pop("customer_id", "c-1"),
        email="ada@example.com",
        lines=[line],
        placed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


# -- each handler called as the function that it is ------------------------------------------


def test_a_parcel_is_worth_its_share(outside):
    paid = OrderPaid(order_id="o-1", email="e", amount=Decimal(10), parcels=4)
    assert pack(paid) == Decimal("2.50")
    assert outside.asked == ["pack o-1"]


# -- events on their road --------------------------------------------------------------------


def test_an_order_is_reserved_charged_and_told_to_the_crm(angzarr_worker, outside):
    done = angzarr_worker.publish(placed(), root="o-1")
    assert {one.handler: one.outcome for one in done} == {
        "orders.reserve_stock": "handled",
        "orders.charge_customer": "handled",
        "orders.sync_to_crm": "handled",
    }
    assert sorted(outside.asked) == ["charge o-1", "reserve o-1 s-1", "upsert o-1"]


def test_a_guest_is_not_told_to_the_crm(angzarr_worker, outside):
    done = angzarr_worker.publish(placed(customer_id=None))
    (crm,) = [one for one in done if one.handler == "orders.sync_to_crm"]
    assert (crm.outcome, crm.why) == ("skipped", "the CRM knows no guests")


def test_an_event_that_comes_twice_is_charged_once(angzarr_worker, outside):
    for _ in range(2):
        angzarr_worker.publish(placed(), id="e-1")
    assert outside.asked.count("charge o-1") == 1


# -- when something fails --------------------------------------------------------------------


def test_a_charge_is_tried_again_after_longer_and_longer_waits(angzarr_worker, outside):
    away = ConnectionError("payments is away")
    outside.answers["payments"] = [away, away, None]
    angzarr_worker.publish(placed(), id="e-1")
    waits = angzarr_worker.waits("e-1", "orders.charge_customer")
    assert len(waits) == 2
    assert waits[1] == 2 * waits[0]
    assert outside.asked.count("charge o-1") == 3


def test_a_charge_that_never_works_is_a_dead_letter(angzarr_worker, outside, dead_letters):
    outside.answers["payments"] = [ConnectionError("payments is away")]
    angzarr_worker.publish(placed(), id="e-1")
    letter = dead_letters.only(handler="orders.charge_customer")
    assert (letter.event_id, letter.reason) == ("e-1", "exhausted")
    assert letter.attempts == outside.asked.count("charge o-1")


def test_an_order_without_a_price_is_given_up_at_once(angzarr_worker, outside, dead_letters):
    angzarr_worker.publish(placed(price="0"))
    letter = dead_letters.only()
    assert (letter.reason, letter.attempts) == ("refused", 1)
    assert "there is nothing to charge" in letter.error_message


def test_nothing_is_tried_before_its_time(angzarr_worker, outside, fake_clock):
    outside.answers["payments"] = [ConnectionError("away"), None]
    angzarr_worker.app.publish(placed(), id="e-1")
    angzarr_worker.run_due()
    (waiting,) = angzarr_worker.waiting
    fake_clock.move_to(waiting.due_at - SECONDS)
    assert angzarr_worker.run_due() == []
    fake_clock.advance(seconds=1)
    assert [one.outcome for one in angzarr_worker.run_due()] == ["handled"]


def test_what_every_delivery_said_is_a_fact(angzarr_worker, outside, facts):
    outside.answers["payments"] = [ConnectionError("away"), None]
    angzarr_worker.publish(placed(), id="e-1")
    told = facts.where(tool_id="orders.charge_customer")
    assert [one.subtype for one in told] == ["tool_failure", "handled"]


# -- after somebody has mended it ------------------------------------------------------------


def test_a_bug_is_held_for_a_person_and_its_replay_works(
    angzarr_worker, outside, ledger, monkeypatch
):
    voucher = OrderPaid(order_id="o-1", email="e", amount=Decimal(10), parcels=0)
    angzarr_worker.publish(voucher, id="e-1")
    ledger.analyse()
    entry = ledger.only(handler_name="orders.pack")
    assert (entry.status, entry.failure_class) == ("held", "code_defect")
    monkeypatch.setattr("orders.OrderPaid.__getattribute__", _one_parcel)
    assert ledger.replay(entry).status == "resolved"


def _one_parcel(self, name):
    found = object.__getattribute__(self, name)
    return 1 if name == "parcels" and found == 0 else found


@pytest.mark.parametrize("number", range(3))
def test_tests_do_not_see_each_other(angzarr_worker, outside, dead_letters, number):
    assert dead_letters == []
    done = angzarr_worker.publish(placed(), id="e-1")
    assert all(one.outcome == "handled" for one in done)
