"""Aggregates and sagas of an example on the road of a test: commands, events, refusals."""

from __future__ import annotations

import importlib
import sys

import pytest

from angzarr.aggregates.book import Address
from angzarr.demo import run as demo_example


@pytest.fixture
def cards():
    kept = list(sys.path)
    demo_example.enter()
    yield importlib.import_module("card_room")
    sys.path[:] = kept
    sys.modules.pop("card_room").app.close()


@pytest.fixture
def app_under_test(cards):
    return cards.app


def test_a_saga_seats_a_player_or_gives_his_funds_back(angzarr_worker, angzarr_app, cards):
    angzarr_app.send_command(cards.Register(bankroll=100), domain="player", root="ann")
    reserve = cards.ReserveFunds(reservation_id="r1", table_id="t", amount=30)
    angzarr_app.send_command(reserve, domain="player", root="ann")
    done = angzarr_worker.run_until_settled()
    assert {one.outcome for one in done} == {"handled", "skipped"}  # the table is not open
    event_stores = angzarr_app.ops.open_event_stores()
    book = event_stores.books.read(Address("player", "ann"), whole=True).book
    assert [event.type for event in book.events][:2] == ["Registered", "FundsReserved"]
    assert [event.type for event in book.events][2:] == ["FundsReleased"]
