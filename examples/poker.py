"""A card room: players reserve funds, sit down, and hands are paid out."""

from __future__ import annotations

from application import app
from outside import Busy, System, Unwanted
from pydantic import BaseModel, Field

from angzarr import Context, Postpone, Skip

table = System("table", says="busy")
bank = System("bank")
ratings = System("ratings")
phone = System("phone", says="unwanted")


class FundsReserved(BaseModel):
    player_id: str
    table_id: str
    amount: int = Field(gt=0)  # cents
    balance: int  # absolute, so that applying it twice changes nothing


class HandPlayed(BaseModel):
    hand_id: str
    table_id: str
    pot: int
    winners: list[str]
    friendly: bool = False


@app.handler(FundsReserved, domain="poker")
def seat_player(funds: FundsReserved) -> None:
    try:
        table.request(f"seat {funds.player_id} at {funds.table_id}")
    except Busy as answer:  # a hand is being played; waiting for its end is no failure
        raise Postpone(0.4, str(answer)) from answer


@app.handler(FundsReserved, domain="poker", operation="webhook")
async def greet_player(funds: FundsReserved) -> None:
    try:
        await phone.ask(f"greet {funds.player_id}")
    except Unwanted as answer:
        raise Skip(str(answer)) from answer


@app.handler(HandPlayed, domain="poker")
def pay_winners(hand: HandPlayed) -> int:
    share = hand.pot // len(hand.winners)  # a bug: everybody may have folded
    bank.request(f"pay {hand.hand_id}")
    return share


@app.handler(HandPlayed, domain="poker", operation="external_api")
async def update_ratings(hand: HandPlayed, ctx: Context) -> None:
    if hand.friendly:
        raise Skip("friendly hands are not rated")
    ctx.log.info("ratings_updated", table=hand.table_id)
    await ratings.ask(f"rate {hand.hand_id}")
