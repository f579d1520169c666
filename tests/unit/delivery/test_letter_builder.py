"""Autopsy: which letters hold up the later events of their aggregate."""

from __future__ import annotations

import pytest

from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import HANDLER, ORDERED_HANDLER, PROJECTOR, Reason
from angzarr.delivery.handlers import Handler
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.events import headers as names
from angzarr.ordering.lane import Order
from angzarr.resilience.taxonomy import classify

PLACE = {names.DOMAIN: "order", names.ROOT: "o-1", names.SEQUENCE: 3}


def order(**options):
    return Order(domains=frozenset({"order"}), types=frozenset({"OrderPaid"}), **options)


@pytest.fixture
def letter_of(world):
    def make(by_order, *, reason=Reason.REFUSED, kind=HANDLER, **headers):
        autopsy = DeadLetterBuilder(clock=world.clock, component="app", worker="host", version="1")
        handler = Handler(name="h", bind=lambda *_: None, order=by_order, component_type=kind)
        error = ValueError("no")
        delivery = world.delivery(**headers)
        seen = classify(error, now=world.clock.now())
        return autopsy.letter(delivery, handler, error, reason, seen)

    return make


@pytest.mark.parametrize(
    ("by_order", "registered", "kind"),
    [
        (None, HANDLER, HANDLER),
        (order(), HANDLER, ORDERED_HANDLER),
        (order(moves=True), PROJECTOR, PROJECTOR),
    ],
)
@pytest.mark.parametrize("form", Form)
def test_a_letter_says_what_kind_of_handler_failed_in_every_form(
    letter_of, by_order, registered, kind, form
):
    letter = letter_of(by_order, kind=registered, **PLACE)
    assert letter.component_type == kind
    assert decode(*encode(letter, form)).component_type == kind


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {names.SEQUENCE: 3},
        {**PLACE, names.DOMAIN: "cart"},
        {**PLACE, names.SEQUENCE: 0},  # before the first of its aggregate
    ],
)
def test_an_event_without_a_place_in_a_lane_holds_nothing_up(letter_of, headers):
    letter = letter_of(order(first=1), reason=Reason.UNDELIVERABLE, **headers)
    assert letter.component_type == HANDLER


def test_a_second_body_under_one_event_id_is_not_what_its_lane_waits_for(letter_of):
    assert letter_of(order(), reason=Reason.CONFLICT, **PLACE).component_type == HANDLER
