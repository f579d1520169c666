"""The card room's own rules: balances are absolute, and no money is made or lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from angzarr import CommandRejectedError
from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.events.event import Event, event_type_of, to_json
from angzarr.sagas import CompensationContext

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def cards(examples):
    return examples("card_room")


@pytest.fixture
def evening(examples):
    return examples("card_room_evening")


@pytest.fixture
def reserved(cards):
    return [
        cards.Registered(bankroll=100),
        cards.FundsReserved(reservation_id="r1", table_id="t", amount=30, bankroll=70),
        cards.FundsReserved(reservation_id="r2", table_id="u", amount=20, bankroll=50),
    ]


def refusal_of(command):
    event = Event(
        id="c", type=event_type_of(command), data=to_json(command), domain="table", root="t"
    )
    origin = Origin(saga="seating", source=Address("player", "ann"), sequence=1)
    return CompensationContext(
        saga_origin=origin,
        rejection_reason="the table is full",
        rejected_command=Command(event=event, origin=origin),
    )


def test_a_refused_seat_gives_back_its_own_reservation_only(cards, after, reserved):
    ann = after(cards.Player, "ann", *reserved)
    refused = refusal_of(cards.SeatPlayer(reservation_id="r1", player_id="ann", amount=30))
    released = ann.seat_refused(refused)
    assert released == cards.FundsReleased(
        reservation_id="r1", bankroll=80, reason="the table is full"
    )


def test_each_event_applied_twice_in_a_row_changes_nothing(cards, after, reserved):
    events = [
        *reserved,
        cards.FundsReleased(reservation_id="r1", bankroll=80, reason="full"),
        cards.SeatConfirmed(reservation_id="r2"),
        cards.FundsReturned(reservation_id="r2", bankroll=95),
    ]
    once = after(cards.Player, "ann", *events)
    twice = after(cards.Player, "ann", *(event for one in events for event in (one, one)))
    assert once.state == twice.state
    assert (once.state.bankroll, once.state.reserved) == (95, {})


def test_a_refusal_of_what_nobody_reserved_is_left_to_people(cards, after, reserved):
    ann = after(cards.Player, "ann", *reserved)
    unknown = refusal_of(cards.SeatPlayer(reservation_id="r9", player_id="ann", amount=30))
    assert ann.seat_refused(unknown) is None


def test_money_counts_a_reservation_once_whether_its_seat_is_confirmed_or_not(
    cards, evening, after, reserved
):
    opened = cards.TableOpened(seats=2, least=1)
    seated = cards.PlayerSeated(reservation_id="r1", player_id="ann", chips=30)
    confirmed = cards.SeatConfirmed(reservation_id="r1")
    for of_player, of_table in (([], []), ([], [seated]), ([confirmed], [seated])):
        ann = after(cards.Player, "ann", *reserved, *of_player)
        table = after(cards.Table, "t", opened, *of_table)
        assert evening.money([ann], [table]) == 100


def test_money_tells_chips_that_came_from_nowhere(cards, evening, after, reserved):
    seated = cards.PlayerSeated(reservation_id="r1", player_id="ann", chips=30)
    moved = cards.ChipsMoved(hand_id="h", chips={"ann": 31})
    table = after(cards.Table, "t", cards.TableOpened(seats=2), seated, moved)
    assert evening.money([after(cards.Player, "ann", *reserved)], [table]) == 101


@pytest.mark.parametrize(
    ("gains", "why"),
    [({"ann": 5, "bob": -5}, "somebody has left"), ({"ann": -31, "eve": 31}, "has not the chips")],
)
def test_a_table_refuses_hands_that_it_cannot_pay_out(cards, after, gains, why):
    seats = [
        cards.PlayerSeated(reservation_id=f"r-{who}", player_id=who, chips=30)
        for who in ("ann", "eve")
    ]
    table = after(cards.Table, "t", cards.TableOpened(seats=2), *seats)
    with pytest.raises(CommandRejectedError, match=why):
        table.apply_hand(cards.ApplyHand(hand_id="h", gains=gains))


def test_the_same_seed_is_the_same_evening(evening):
    first, again, other = (list(evening.wishes("r", 80, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert {type(ask.command).__name__ for ask in first} == {
        "ReserveFunds",
        "LeaveTable",
        "SettleHand",
    }


def test_the_guide_shows_the_examples_own_code():
    guide = (CHECKOUT / "docs" / "how-to" / "write-a-saga.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    code = "".join(
        (CHECKOUT / "examples" / name).read_text() for name in ("card_room.py", "order_desk.py")
    )
    assert len(shown) > 5
    assert [sample for sample in shown if sample not in code] == []
