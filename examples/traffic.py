"""What happens in the shop and in the card room on a busy day, malformed messages included."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from orders import Line, OrderCancelled, OrderPaid, OrderPlaced
from poker import FundsReserved, HandPlayed
from pydantic import BaseModel

OPENING = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SKUS = {
    "lamp": Decimal("39.90"),
    "chair": Decimal("119.00"),
    "rug": Decimal("249.50"),
    "mug": Decimal("8.50"),
}
FREE = Decimal(0)


class Happening(NamedTuple):
    """An event to publish; `root` names the order, player or hand that it is about."""

    type: str
    event: BaseModel | dict[str, Any]
    root: str


def day(events: int, seed: int) -> Iterator[Happening]:
    """Yield *events* happenings, the same ones for the same *seed*."""
    dice = random.Random(f"day {seed}")
    for number in range(events):
        make = dice.choices((_placed, _paid, _cancelled, _reserved, _played), (4, 3, 1, 3, 4))[0]
        event, root = make(number, dice)
        kind = type(event).__name__
        if _happens(dice, 0.015):
            yield Happening(kind, _garbled(event, dice), root)
        else:
            yield Happening(kind, event, root)


def _placed(number: int, dice: random.Random) -> tuple[BaseModel, str]:
    order = f"o-{number:05}"
    bought = dice.sample(sorted(SKUS), dice.choice((1, 1, 2)))
    given_away = _happens(dice, 0.03)
    return OrderPlaced(
        order_id=order,
        customer_id=None if _happens(dice, 0.1) else f"c-{dice.randrange(500):03}",
        email=f"somebody{number}@shop.example",
        lines=[
            Line(sku=sku, quantity=dice.randint(1, 3), price=FREE if given_away else SKUS[sku])
            for sku in bought
        ],
        placed_at=OPENING + timedelta(seconds=7 * number),
    ), order


def _paid(number: int, dice: random.Random) -> tuple[BaseModel, str]:
    order = f"o-{number:05}"
    return OrderPaid(
        order_id=order,
        email=f"somebody{number}@shop.example",
        amount=Decimal(dice.randrange(850, 90_000)) / 100,
        parcels=0 if _happens(dice, 0.03) else dice.randint(1, 3),
    ), order


def _cancelled(number: int, dice: random.Random) -> tuple[BaseModel, str]:
    order = f"o-{number:05}"
    return OrderCancelled(
        order_id=order,
        reason=dice.choice(("changed my mind", "found it cheaper", "the customer is gone")),
        refund=Decimal(dice.choice((0, 3990, 11900))) / 100,
    ), order


def _reserved(number: int, dice: random.Random) -> tuple[BaseModel, str]:
    player = f"p-{number:05}"
    amount = dice.randrange(10_00, 200_00, 50)
    return FundsReserved(
        player_id=player,
        table_id=f"t-{dice.randrange(12)}",
        amount=amount,
        balance=dice.randrange(0, 1000_00, 50),
    ), player


def _played(number: int, dice: random.Random) -> tuple[BaseModel, str]:
    hand = f"h-{number:05}"
    players = [f"p-{dice.randrange(400):05}" for _ in range(dice.choice((1, 1, 1, 2)))]
    return HandPlayed(
        hand_id=hand,
        table_id=f"t-{dice.randrange(12)}",
        pot=dice.randrange(2_00, 500_00, 50),
        winners=[] if _happens(dice, 0.03) else players,
        friendly=_happens(dice, 0.12),
    ), hand


def _garbled(event: BaseModel, dice: random.Random) -> dict[str, Any]:
    """Return *event* as a careless publisher would send it: a field missing or of another kind."""
    data = event.model_dump(mode="json")
    field = dice.choice(sorted(type(event).model_fields))
    if _happens(dice, 0.5):
        return {name: value for name, value in data.items() if name != field}
    return data | {field: {"what": "is this?"}}


def _happens(dice: random.Random, share: float) -> bool:
    return dice.random() < share
