"""A card room with event books: players, tables and hands, and sagas between them.

A player reserves funds; a saga asks the table to seat him; where the table refuses, the player
gets his funds back. Events tell absolute balances, so that applying one twice changes nothing.
Whatever happens, bankrolls, reservations and chips at the tables make the same sum: `money`
in card_room_evening.py.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from angzarr import (
    Aggregate,
    Angzarr,
    CommandRejectedError,
    Saga,
    Send,
    applies,
    handles,
    reacts_to,
    rejected,
)
from angzarr.aggregates import MergeStrategy, merge_strategy
from angzarr.sagas import CompensationContext

app = Angzarr("card-room")

# -- players -------------------------------------------------------------------------------------


class Register(BaseModel):
    bankroll: int = Field(ge=0)  # cents, as all sums


class ReserveFunds(BaseModel):
    reservation_id: str
    table_id: str
    amount: int = Field(gt=0)


class ConfirmSeat(BaseModel):
    reservation_id: str


class ReturnFunds(BaseModel):
    reservation_id: str
    chips: int = Field(ge=0)


class Registered(Register):
    """He may reserve funds."""


class FundsReserved(ReserveFunds):
    bankroll: int  # what is left: absolute, as in all events of players


class FundsReleased(BaseModel):
    reservation_id: str
    bankroll: int
    reason: str


class SeatConfirmed(ConfirmSeat):
    """What he reserved is chips on a table now."""


class FundsReturned(BaseModel):
    reservation_id: str
    bankroll: int


class Funds(BaseModel):
    registered: bool = False
    bankroll: int = 0
    reserved: dict[str, int] = {}  # by reservation, until a table seats him or refuses


@app.aggregate("player", snapshot_every=50)
class Player(Aggregate[Funds]):
    @handles(Register)
    def register(self, command: Register) -> Registered:
        if self.state.registered:
            raise CommandRejectedError("he is a player already")
        return Registered(bankroll=command.bankroll)

    @handles(ReserveFunds)
    @merge_strategy(MergeStrategy.STRICT)  # money: a sender that looked first looks again itself
    def reserve(self, command: ReserveFunds) -> FundsReserved:
        if command.reservation_id in self.state.reserved:
            raise CommandRejectedError("that is reserved already")
        left = self.state.bankroll - command.amount
        if left < 0:
            raise CommandRejectedError("that is more than the bankroll")
        return FundsReserved(**command.model_dump(), bankroll=left)

    @handles(ConfirmSeat)
    def confirm(self, command: ConfirmSeat) -> SeatConfirmed:
        return SeatConfirmed(reservation_id=command.reservation_id)

    @handles(ReturnFunds)
    def take_back(self, command: ReturnFunds) -> FundsReturned:
        bankroll = self.state.bankroll + command.chips
        return FundsReturned(reservation_id=command.reservation_id, bankroll=bankroll)

    @rejected("table", "SeatPlayer")
    def seat_refused(self, refused: CompensationContext) -> FundsReleased | None:
        seat = refused.command_as(SeatPlayer)
        amount = self.state.reserved.get(seat.reservation_id)
        if amount is None:
            return None  # he never asked: somebody must look into that
        bankroll = self.state.bankroll + amount
        reason = refused.rejection_reason
        return FundsReleased(reservation_id=seat.reservation_id, bankroll=bankroll, reason=reason)

    @applies(Registered)
    def on_registered(self, event: Registered) -> None:
        self.state.registered, self.state.bankroll = True, event.bankroll

    @applies(FundsReserved)
    def on_reserved(self, event: FundsReserved) -> None:
        self.state.bankroll = event.bankroll
        self.state.reserved[event.reservation_id] = event.amount

    @applies(FundsReleased)
    def on_released(self, event: FundsReleased) -> None:
        self.state.bankroll = event.bankroll
        self.state.reserved.pop(event.reservation_id, None)

    @applies(SeatConfirmed)
    def on_confirmed(self, event: SeatConfirmed) -> None:
        self.state.reserved.pop(event.reservation_id, None)

    @applies(FundsReturned)
    def on_returned(self, event: FundsReturned) -> None:
        self.state.bankroll = event.bankroll


# -- tables --------------------------------------------------------------------------------------


class OpenTable(BaseModel):
    seats: int = Field(gt=0)
    least: int = 0  # the smallest sum to sit down with


class SeatPlayer(BaseModel):
    reservation_id: str
    player_id: str
    amount: int = Field(gt=0)


class LeaveTable(BaseModel):
    player_id: str


class ApplyHand(BaseModel):
    hand_id: str
    gains: dict[str, int]  # negative: what a player lost; their sum is 0


class TableOpened(OpenTable):
    """Players may sit down."""


class PlayerSeated(BaseModel):
    reservation_id: str
    player_id: str
    chips: int


class PlayerLeft(PlayerSeated):
    """He takes his chips with him."""


class ChipsMoved(BaseModel):
    hand_id: str
    chips: dict[str, int]  # absolute


class Seats(BaseModel):
    seats: int = 0
    least: int = 0
    taken: dict[str, PlayerSeated] = {}  # by player, with the chips that he has now


@app.aggregate("table", snapshot_every=50)
class Table(Aggregate[Seats]):
    @handles(OpenTable)
    def open(self, command: OpenTable) -> TableOpened:
        if self.state.seats:
            raise CommandRejectedError("the table is open")
        return TableOpened(seats=command.seats, least=command.least)

    @handles(SeatPlayer)
    def seat(self, command: SeatPlayer) -> PlayerSeated:
        if not self.state.seats:
            raise CommandRejectedError("there is no such table")
        if command.player_id in self.state.taken:
            raise CommandRejectedError("he sits here already")
        if len(self.state.taken) >= self.state.seats:
            raise CommandRejectedError("the table is full")
        if command.amount < self.state.least:
            raise CommandRejectedError("nobody sits down with so little")
        return PlayerSeated(**command.model_dump(exclude={"amount"}), chips=command.amount)

    @handles(LeaveTable)
    def leave(self, command: LeaveTable) -> PlayerLeft | None:
        seat = self.state.taken.get(command.player_id)
        return PlayerLeft(**seat.model_dump()) if seat else None

    @handles(ApplyHand)
    def apply_hand(self, command: ApplyHand) -> ChipsMoved:
        if command.gains.keys() - self.state.taken.keys():
            raise CommandRejectedError("somebody has left the table")
        chips = {who: self.state.taken[who].chips + gain for who, gain in command.gains.items()}
        if min(chips.values(), default=0) < 0:
            raise CommandRejectedError("somebody has not the chips that he lost")
        return ChipsMoved(hand_id=command.hand_id, chips=chips)

    @applies(TableOpened)
    def on_opened(self, event: TableOpened) -> None:
        self.state.seats, self.state.least = event.seats, event.least

    @applies(PlayerSeated)
    def on_seated(self, event: PlayerSeated) -> None:
        self.state.taken[event.player_id] = event

    @applies(PlayerLeft)
    def on_left(self, event: PlayerLeft) -> None:
        self.state.taken.pop(event.player_id, None)

    @applies(ChipsMoved)
    def on_moved(self, event: ChipsMoved) -> None:
        for player_id, chips in event.chips.items():
            self.state.taken[player_id].chips = chips


# -- hands ---------------------------------------------------------------------------------------


class SettleHand(BaseModel):
    table_id: str
    gains: dict[str, int]


class HandSettled(SettleHand):
    """The table is asked to move the chips."""


class HandVoided(BaseModel):
    reason: str


class Played(BaseModel):
    settled: bool = False


@app.aggregate("hand")
class Hand(Aggregate[Played]):
    @handles(SettleHand)
    def settle(self, command: SettleHand) -> HandSettled:
        if self.state.settled:
            raise CommandRejectedError("the hand is settled")
        if sum(command.gains.values()):
            raise CommandRejectedError("what one loses another wins")
        return HandSettled(**command.model_dump())

    @rejected("table", ApplyHand)
    def void(self, refused: CompensationContext) -> HandVoided:
        return HandVoided(reason=refused.rejection_reason)

    @applies(HandSettled)
    def on_settled(self, _event: HandSettled) -> None:
        self.state.settled = True


# -- between them --------------------------------------------------------------------------------


@app.saga("seating", source="player")
class Seating(Saga):
    @reacts_to(FundsReserved)
    def ask_for_a_seat(self, event: FundsReserved) -> Send:
        player = str(self.event.root)
        wanted = SeatPlayer(
            reservation_id=event.reservation_id, player_id=player, amount=event.amount
        )
        return Send(wanted, domain="table", root=event.table_id)


@app.saga("cashier", source="table")
class Cashier(Saga):
    @reacts_to(PlayerSeated)
    def confirm(self, event: PlayerSeated) -> Send:
        seated = ConfirmSeat(reservation_id=event.reservation_id)
        return Send(seated, domain="player", root=event.player_id)

    @reacts_to(PlayerLeft)
    def pay_out(self, event: PlayerLeft) -> Send:
        paid = ReturnFunds(reservation_id=event.reservation_id, chips=event.chips)
        return Send(paid, domain="player", root=event.player_id)


@app.saga("dealer", source="hand")
class Dealer(Saga):
    @reacts_to(HandSettled)
    def move_chips(self, event: HandSettled) -> Send:
        moved = ApplyHand(hand_id=str(self.event.root), gains=event.gains)
        return Send(moved, domain="table", root=event.table_id)
