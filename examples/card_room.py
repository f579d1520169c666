"""A card room with event books: players, tables and hands, and sagas between them.

A player reserves funds; a saga asks the table to seat him; where the table refuses, the player
gets his funds back. Events tell absolute balances, so that applying one twice changes nothing.
Whatever happens, bankrolls, reservations and chips at the tables make the same sum.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from angzarr import (
    Aggregate,
    Angzarr,
    CommandRejectedError,
    CompensationContext,
    MergeStrategy,
    Saga,
    Send,
    applies,
    handles,
    merge_strategy,
    reacts_to,
    rejected,
)

app = Angzarr("card-room")

# -- players -------------------------------------------------------------------------------------


class Register(BaseModel):
    bankroll: int = Field(ge=0)  # cents


class ReserveFunds(BaseModel):
    table_id: str
    amount: int = Field(gt=0)


class ConfirmSeat(BaseModel):
    table_id: str


class ReturnFunds(BaseModel):
    table_id: str
    chips: int = Field(ge=0)


class Registered(BaseModel):
    bankroll: int


class FundsReserved(BaseModel):
    table_id: str
    amount: int
    bankroll: int  # absolute, as in all events of players


class FundsReleased(BaseModel):
    table_id: str
    bankroll: int
    reason: str


class SeatConfirmed(BaseModel):
    table_id: str


class FundsReturned(BaseModel):
    table_id: str
    bankroll: int


class Funds(BaseModel):
    registered: bool = False
    bankroll: int = 0
    reserved: dict[str, int] = {}  # by table, while it is asked for a seat


@app.aggregate("player", snapshot_every=50)
class Player(Aggregate[Funds]):
    @handles(Register)
    def register(self, command: Register) -> Registered:
        if self.state.registered:
            msg = f"{self.address.root} is a player already"
            raise CommandRejectedError(msg)
        return Registered(bankroll=command.bankroll)

    @handles(ReserveFunds)
    @merge_strategy(MergeStrategy.STRICT)  # money
    def reserve(self, command: ReserveFunds) -> FundsReserved:
        left = self.state.bankroll - command.amount
        if command.table_id in self.state.reserved:
            msg = f"funds for {command.table_id} are reserved already"
            raise CommandRejectedError(msg)
        if left < 0:
            msg = f"{command.amount} is more than the bankroll of {self.state.bankroll}"
            raise CommandRejectedError(msg)
        return FundsReserved(table_id=command.table_id, amount=command.amount, bankroll=left)

    @handles(ConfirmSeat)
    def confirm(self, command: ConfirmSeat) -> SeatConfirmed | None:
        known = command.table_id in self.state.reserved
        return SeatConfirmed(table_id=command.table_id) if known else None

    @handles(ReturnFunds)
    def take_back(self, command: ReturnFunds) -> FundsReturned:
        bankroll = self.state.bankroll + command.chips
        return FundsReturned(table_id=command.table_id, bankroll=bankroll)

    @rejected("table", "SeatPlayer")
    def seat_refused(self, refused: CompensationContext) -> FundsReleased | None:
        table_id = refused.command.root or ""
        amount = self.state.reserved.get(table_id)
        if amount is None:
            return None  # released before
        bankroll = self.state.bankroll + amount
        return FundsReleased(table_id=table_id, bankroll=bankroll, reason=refused.rejection_reason)

    @applies(Registered)
    def on_registered(self, event: Registered) -> None:
        self.state.registered, self.state.bankroll = True, event.bankroll

    @applies(FundsReserved)
    def on_reserved(self, event: FundsReserved) -> None:
        self.state.bankroll = event.bankroll
        self.state.reserved[event.table_id] = event.amount

    @applies(FundsReleased)
    def on_released(self, event: FundsReleased) -> None:
        self.state.bankroll = event.bankroll
        self.state.reserved.pop(event.table_id, None)

    @applies(SeatConfirmed)
    def on_confirmed(self, event: SeatConfirmed) -> None:
        self.state.reserved.pop(event.table_id, None)

    @applies(FundsReturned)
    def on_returned(self, event: FundsReturned) -> None:
        self.state.bankroll = event.bankroll


# -- tables --------------------------------------------------------------------------------------


class OpenTable(BaseModel):
    seats: int = Field(gt=0)
    least: int = 0  # the smallest sum to sit down with


class SeatPlayer(BaseModel):
    player_id: str
    amount: int = Field(gt=0)


class LeaveTable(BaseModel):
    player_id: str


class ApplyHand(BaseModel):
    hand_id: str
    gains: dict[str, int]  # negative: what a player lost; their sum is 0


class TableOpened(BaseModel):
    seats: int
    least: int


class PlayerSeated(BaseModel):
    player_id: str
    chips: int


class PlayerLeft(BaseModel):
    player_id: str
    chips: int


class ChipsMoved(BaseModel):
    hand_id: str
    chips: dict[str, int]  # absolute


class Seats(BaseModel):
    seats: int = 0
    least: int = 0
    chips: dict[str, int] = {}  # by player


@app.aggregate("table", snapshot_every=50)
class Table(Aggregate[Seats]):
    @handles(OpenTable)
    def open(self, command: OpenTable) -> TableOpened:
        if self.state.seats:
            msg = f"table {self.address.root} is open"
            raise CommandRejectedError(msg)
        return TableOpened(seats=command.seats, least=command.least)

    @handles(SeatPlayer)
    def seat(self, command: SeatPlayer) -> PlayerSeated:
        if command.player_id in self.state.chips:
            raise CommandRejectedError("he sits here already")
        if len(self.state.chips) >= self.state.seats:
            raise CommandRejectedError("the table is full" if self.state.seats else "no such table")
        if command.amount < self.state.least:
            msg = f"nobody sits down with less than {self.state.least}"
            raise CommandRejectedError(msg)
        return PlayerSeated(player_id=command.player_id, chips=command.amount)

    @handles(LeaveTable)
    def leave(self, command: LeaveTable) -> PlayerLeft:
        if command.player_id not in self.state.chips:
            raise CommandRejectedError("he does not sit here")
        chips = self.state.chips[command.player_id]
        return PlayerLeft(player_id=command.player_id, chips=chips)

    @handles(ApplyHand)
    def apply_hand(self, command: ApplyHand) -> ChipsMoved:
        after = {
            player: self.state.chips.get(player, 0) + gain for player, gain in command.gains.items()
        }
        if gone := set(command.gains) - set(self.state.chips):
            msg = f"{', '.join(sorted(gone))} left the table"
            raise CommandRejectedError(msg)
        if short := [player for player, chips in after.items() if chips < 0]:
            msg = f"{', '.join(sorted(short))} cannot pay"
            raise CommandRejectedError(msg)
        return ChipsMoved(hand_id=command.hand_id, chips=after)

    @applies(TableOpened)
    def on_opened(self, event: TableOpened) -> None:
        self.state.seats, self.state.least = event.seats, event.least

    @applies(PlayerSeated)
    def on_seated(self, event: PlayerSeated) -> None:
        self.state.chips[event.player_id] = event.chips

    @applies(PlayerLeft)
    def on_left(self, event: PlayerLeft) -> None:
        self.state.chips.pop(event.player_id, None)

    @applies(ChipsMoved)
    def on_moved(self, event: ChipsMoved) -> None:
        self.state.chips.update(event.chips)


# -- hands ---------------------------------------------------------------------------------------


class SettleHand(BaseModel):
    table_id: str
    gains: dict[str, int]


class HandSettled(BaseModel):
    table_id: str
    gains: dict[str, int]


class HandVoided(BaseModel):
    reason: str


class Played(BaseModel):
    settled: bool = False
    voided: bool = False


@app.aggregate("hand")
class Hand(Aggregate[Played]):
    @handles(SettleHand)
    def settle(self, command: SettleHand) -> HandSettled:
        if self.state.settled:
            raise CommandRejectedError("the hand is settled")
        if sum(command.gains.values()):
            raise CommandRejectedError("what one loses another wins")
        return HandSettled(table_id=command.table_id, gains=command.gains)

    @rejected("table", ApplyHand)
    def not_applied(self, refused: CompensationContext) -> HandVoided | None:
        return None if self.state.voided else HandVoided(reason=refused.rejection_reason)

    @applies(HandSettled)
    def on_settled(self, _event: HandSettled) -> None:
        self.state.settled = True

    @applies(HandVoided)
    def on_voided(self, _event: HandVoided) -> None:
        self.state.voided = True


# -- between them --------------------------------------------------------------------------------


@app.saga("seating", source="player")
class Seating(Saga):
    @reacts_to(FundsReserved)
    def ask_for_a_seat(self, event: FundsReserved) -> Send:
        wanted = SeatPlayer(player_id=str(self.event.root), amount=event.amount)
        return Send(wanted, domain="table", root=event.table_id)


@app.saga("tables-to-players", source="table")
class TablesToPlayers(Saga):
    @reacts_to(PlayerSeated)
    def confirm(self, event: PlayerSeated) -> Send:
        table_id = str(self.event.root)
        return Send(ConfirmSeat(table_id=table_id), domain="player", root=event.player_id)

    @reacts_to(PlayerLeft)
    def pay_out(self, event: PlayerLeft) -> Send:
        paid = ReturnFunds(table_id=str(self.event.root), chips=event.chips)
        return Send(paid, domain="player", root=event.player_id)


@app.saga("hands-to-tables", source="hand")
class HandsToTables(Saga):
    @reacts_to(HandSettled)
    def move_chips(self, event: HandSettled) -> Send:
        moved = ApplyHand(hand_id=str(self.event.root), gains=event.gains)
        return Send(moved, domain="table", root=event.table_id)
