"""An evening in the card room: what is asked for, and whether all money is where it should be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from card_room import (
    LeaveTable,
    OpenTable,
    Player,
    Register,
    ReserveFunds,
    SettleHand,
    Table,
    app,
)
from reckoning import Ask, Reckoning, Told, roots_of, told

PLAYERS, TABLES, SEATS = 24, 4, 5
AT_LEAST = 2  # players of a hand
SITTING_DOWN = 8  # wishes, until a player is believed to sit
#: The command by whose rejection the evening is told.
STORY = "SeatPlayer"
BANKROLL, LEAST = 1_000_00, 20_00


def opening(room: str) -> list[Ask]:
    """Return what is done before anybody comes; *room* begins all names."""
    tables = [
        Ask(OpenTable(seats=SEATS, least=LEAST), "table", f"{room}-t{number}")
        for number in range(TABLES)
    ]
    players = [Ask(Register(bankroll=BANKROLL), "player", player) for player in _players(room)]
    return [*tables, *players]


def _players(room: str) -> list[str]:
    return [f"{room}-p{number:02}" for number in range(PLAYERS)]


def wishes(room: str, count: int, seed: int) -> Iterator[Ask]:
    """Yield *count* wishes, the same ones for the same *seed*.

    Whoever wishes knows roughly who sits where, and is wrong now and then, as people are.
    """
    dice = random.Random(f"evening {seed}")
    believed: dict[str, dict[str, int]] = {f"{room}-t{number}": {} for number in range(TABLES)}
    for number in range(count):
        table = dice.choice(sorted(believed))
        came = believed[table]  # when, by player
        sitting = [player for player, at in came.items() if at < number - SITTING_DOWN]
        if len(sitting) < AT_LEAST or _happens(dice, 0.4):
            wish = _reserve(f"{room}-r{number:05}", room, table, dice)
            if len(came) < SEATS and wish.command.amount >= LEAST:
                came.setdefault(wish.root, number)
            yield wish
        elif _happens(dice, 0.3):
            yield Ask(LeaveTable(player_id=sitting[0]), "table", table)
            del came[sitting[0]]
        else:
            strangers = [player for player in _players(room) if player not in came]
            mistaken = [dice.choice(strangers)] if _happens(dice, 0.2) else []
            yield _settle(f"{room}-h{number:05}", table, [*sitting, *mistaken], dice)


def _reserve(reservation: str, room: str, table: str, dice: random.Random) -> Ask:
    player = dice.choice(_players(room))
    too_much = _happens(dice, 0.03)
    amount = 10 * BANKROLL if too_much else dice.randrange(LEAST - 10_00, 150_00, 50)
    wish = ReserveFunds(reservation_id=reservation, table_id=table, amount=amount)
    return Ask(wish, "player", player, may_be_refused=True)


def _settle(hand: str, table: str, sitting: list[str], dice: random.Random) -> Ask:
    loser, *winners = dice.sample(sitting, min(len(sitting), dice.choice((2, 2, 3))))
    won = [dice.randrange(50, 40_00, 50) for _ in winners]
    gains = dict(zip(winners, won, strict=True)) | {loser: -sum(won)}
    return Ask(SettleHand(table_id=table, gains=gains), "hand", hand)


def _happens(dice: random.Random, share: float) -> bool:
    return dice.random() < share


def money(players: Sequence[Player], tables: Sequence[Table]) -> int:
    """Return all the money in the room; it is the same whenever no message is on its way."""
    seats = [seat for table in tables for seat in table.state.taken.values()]
    seated = {seat.reservation_id for seat in seats}
    waiting = [
        amount
        for player in players
        for reservation, amount in player.state.reserved.items()
        if reservation not in seated
    ]
    bankrolls = (player.state.bankroll for player in players)
    return sum(bankrolls) + sum(waiting) + sum(seat.chips for seat in seats)


def reckon(asks: Sequence[Ask]) -> Reckoning:
    """Return what became of *asks*, which include those of the opening."""
    found = Reckoning()
    players, tables = roots_of(asks, "player"), roots_of(asks, "table")
    events = [
        *told(app, "player", players),
        *told(app, "table", tables),
        *told(app, "hand", roots_of(asks, "hand")),
    ]
    found.same(
        "money in the room",
        money(
            [app.load(Player, root) for root in players], [app.load(Table, root) for root in tables]
        ),
        sum(ask.command.bankroll for ask in asks if isinstance(ask.command, Register)),
    )
    _reservations(found, events)
    _hands(found, events)
    return found


def _reservations(found: Reckoning, events: list[Told]) -> None:
    """Let each reservation have one end, and each seat one that was paid out if it was left."""
    count = Counter((event.type, event.data.get("reservation_id")) for event in events)
    reasons = {
        event.data["reservation_id"]: event.data["reason"]
        for event in events
        if event.type == "FundsReleased"
    }
    for (kind, reservation), times in count.items():
        if kind == "FundsReserved":
            released = [f"reservation released: {reasons.get(reservation)}"]
            found.one_end(
                f"reservation {reservation}",
                ["reservation became a seat"] * count["SeatConfirmed", reservation]
                + released * count["FundsReleased", reservation],
            )
            for one, other in (("SeatConfirmed", "PlayerSeated"), ("FundsReturned", "PlayerLeft")):
                pair = (count[one, reservation], count[other, reservation])
                if pair not in ((0, 0), (1, 1)):
                    found.problems.append(
                        f"reservation {reservation} has {pair[0]} {one} and {pair[1]} {other}"
                    )
            if count["FundsReturned", reservation]:
                found.ends["seat left and paid out"] += 1
            found.same(f"times that {reservation} was reserved", times, 1)


def _hands(found: Reckoning, events: list[Told]) -> None:
    """Let each hand be played out or voided, and once."""
    moved = Counter(event.data["hand_id"] for event in events if event.type == "ChipsMoved")
    voided = Counter(event.root for event in events if event.type == "HandVoided")
    reasons = {event.root: event.data["reason"] for event in events if event.type == "HandVoided"}
    for event in events:
        if event.type == "HandSettled":
            hand = event.root
            found.one_end(
                f"hand {hand}",
                ["hand paid out"] * moved[hand]
                + [f"hand voided: {reasons.get(hand)}"] * voided[hand],
            )
