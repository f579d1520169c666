"""The order desk's process: what it does with parts that come late, or are refused twice."""

from __future__ import annotations

import pytest

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, MergeStrategy, Origin
from angzarr.events.event import Event
from angzarr.sagas import CompensationContext, Flags
from angzarr.sagas.rejection_answers import Compensation, answer_of


@pytest.fixture
def desk(examples):
    return examples("order_desk")


@pytest.fixture
def parts(examples):
    return examples("order_parts")


@pytest.fixture
def started(desk):
    return desk.FulfilmentStarted(order_id="o", customer_id="ann", parts=["mug", "points"])


def refusal():
    origin = Origin(saga="fulfilment", source=Address("fulfilment", "o"), sequence=0)
    command = Command(event=Event(id="c", type="ReserveStock", data={}), origin=origin)
    return CompensationContext(
        saga_origin=origin, rejection_reason="out of stock", rejected_command=command
    )


def test_a_placed_order_asks_for_every_part_at_once(desk, after):
    placed = desk.OrderPlaced(order_id="o", customer_id="ann", lines={"mug": 2, "rug": 1})
    first, *sends = after(desk.Fulfilment, "o").start(placed)
    assert first.parts == ["mug", "rug", "points"]
    assert [(send.domain, send.root) for send in sends] == [
        ("stock", "mug"),
        ("stock", "rug"),
        ("customer", "ann"),
    ]


def test_the_last_part_completes_it(desk, parts, after, started):
    done = desk.PartDone(order_id="o", part="mug")
    booked = after(desk.Fulfilment, "o", started, done).booked(
        parts.PointsBooked(order_id="o", points=2)
    )
    assert [type(event).__name__ for event in booked] == ["PartDone", "FulfilmentCompleted"]
    assert sorted(booked[1].parts) == ["mug", "points"]


def test_a_refused_part_fails_it_and_drops_what_was_done(desk, after, started):
    done = desk.PartDone(order_id="o", part="points")
    answer = answer_of(after(desk.Fulfilment, "o", started, done).refused(refusal()))
    assert isinstance(answer, Compensation)
    failed, dropped = (event.data for event in answer.events)
    assert failed == {"order_id": "o", "reason": "out of stock"}
    assert dropped == {"order_id": "o", "customer_id": "ann", "parts": ["points"]}


def test_a_part_that_is_done_after_the_failure_is_dropped_then(desk, parts, after, started):
    failed = desk.FulfilmentFailed(order_id="o", reason="out of stock")
    late = after(desk.Fulfilment, "o", started, failed).booked(
        parts.PointsBooked(order_id="o", points=2)
    )
    assert late == [desk.PartsDropped(order_id="o", customer_id="ann", parts=["points"])]


def test_a_second_refusal_is_declined_and_nothing_is_done_twice(desk, after, started):
    failed = desk.FulfilmentFailed(order_id="o", reason="out of stock")
    answer = after(desk.Fulfilment, "o", started, failed).refused(refusal())
    assert isinstance(answer, Flags)
    assert not any(answer.steps())


def test_goods_are_the_same_on_hand_reserved_and_shipped(examples, parts, after):
    goods = examples("order_desk_day").goods
    shelf = [
        parts.StockDelivered(on_hand=9),
        parts.StockReserved(order_id="o", article="mug", on_hand=7, reserved=2, shipped=0),
        parts.StockShipped(order_id="o", on_hand=7, reserved=0, shipped=2),
    ]
    for number in (1, 2, 3):
        assert goods([after(parts.Stock, "mug", *shelf[:number])]) == {"mug": 9}


def test_each_strategy_stands_where_the_guide_says(desk, parts):
    declared = {
        (kind.__name__, name): method.merge
        for kind in (parts.Stock, parts.Customer, desk.Care)
        for name, method in kind.methods.handles.items()
        if method.merge is not None
    }
    assert declared == {
        ("Stock", "Deliver"): MergeStrategy.COMMUTATIVE,
        ("Customer", "CloseAccount"): MergeStrategy.STRICT,
        ("Care", "Note"): MergeStrategy.AGGREGATE_HANDLES,
    }


def test_two_ends_and_none_are_both_told(examples):
    found = examples("reckoning").Reckoning()
    found.one_end("order 1", ["order confirmed"])
    found.one_end("order 2", [])
    found.one_end("order 3", ["order confirmed", "order cancelled"])
    assert found.problems == [
        "order 2 has 0 ends: none",
        "order 3 has 2 ends: order confirmed, order cancelled",
    ]
