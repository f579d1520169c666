"""Runs: random histories of the card room, and what must hold after each of them."""

from __future__ import annotations

import importlib
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from angzarr.sagas.log import Case, CaseFilter, RejectionStatus
from saga_model.world import Told, World

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = ("card_room", "card_room_evening")


class Site(NamedTuple):
    """The card room on real servers."""

    cards: Any
    #: The invariant, and what the demo does with the example.
    evening: Any
    redis: Any

    @property
    def app(self) -> Any:
        return self.cards.app


class Account(NamedTuple):
    """What a run came to."""

    told: Told
    #: Rejected commands by how their compensation ended.
    cases: dict[str, int]
    #: What does not add up; empty: everything does.
    problems: list[str]


@contextmanager
def card_room(redis_url: str, books_url: str, setenv: Callable[[str, str], None]) -> Iterator[Site]:
    """The example's app with its claims in Redis, its broker there, and its books in SQL."""
    import redis

    said = {
        "CELERY_BROKER_URL": redis_url,
        "ANGZARR_STORE": redis_url,
        "ANGZARR_BOOKS": books_url,
        "ANGZARR_PREFIX": f"model-{uuid.uuid4().hex[:8]}",
        "ANGZARR_DLQ__BACKEND": "channel",
        "ANGZARR_POISON_WAVE__ENABLED": "false",
        "ANGZARR_FACTS__LOG": "false",
        "ANGZARR_LOGS": "celery",
        "ANGZARR_SAGA_COMPENSATION__MAX_DEPTH": "40",
    }
    for name, value in said.items():
        setenv(name, value)
    sys.path.insert(0, str(EXAMPLES))
    try:
        _forget()
        cards, evening = map(importlib.import_module, MODULES)
        cards.app.conf.task_default_queue = said["ANGZARR_PREFIX"]
        with redis.Redis.from_url(redis_url) as client:
            try:
                yield Site(cards, evening, client)
            finally:
                client.delete(said["ANGZARR_PREFIX"])
                cards.app.close()
    finally:
        sys.path.remove(str(EXAMPLES))
        _forget()


def _forget() -> None:
    for module in MODULES:
        sys.modules.pop(module, None)


def run(site: Site, seed: int) -> Account:
    """Play one random history to its end and account for it."""
    chance = random.Random(seed)
    room = _Room(site, chance)
    world = World(site.app, site.redis, seed)
    with _moody(site.cards.Player, chance):
        told = world.settle_all(room.commands())
    cases = site.app._parts.chains.get().rejections.cases(CaseFilter(), limit=10_000)
    mine = [case for case in cases if case.source.root.startswith(room.id)]
    return Account(told, _count(mine), [*room.problems(), *_untold(mine)])


class _Room:
    """Some players, tables and hands of one run's own."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._cards, self._app, self._chance = site.cards, site.app, chance
        self._money = site.evening.money
        self.players = [f"{self.id}-p{n}" for n in range(chance.randint(1, 4))]
        self.tables = [f"{self.id}-t{n}" for n in range(chance.randint(1, 2))]
        self.bankrolls = {player: chance.randint(0, 1000) for player in self.players}

    def commands(self) -> list[Callable[[], Any]]:
        """Everybody registers and tables open, mostly; then all sorts of things are asked for."""
        cards, draw = self._cards, self._chance
        first = [
            self._to("player", player, cards.Register(bankroll=bankroll))
            for player, bankroll in self.bankrolls.items()
        ]
        first += [
            self._to(
                "table",
                table,
                cards.OpenTable(seats=draw.randint(1, 2), least=draw.choice([0, 100])),
            )
            for table in self.tables
            if draw.random() < 0.9
        ]
        later = [self._any() for _ in range(draw.randint(3, 10))]
        return [*first, *later]

    def _table(self) -> object:
        seats, least = self._chance.randint(1, 2), self._chance.choice([0, 100])
        return self._cards.OpenTable(seats=seats, least=least)

    def _any(self) -> Callable[[], Any]:
        cards, draw = self._cards, self._chance
        player, table = draw.choice(self.players), draw.choice(self.tables)
        kind = draw.random()
        if kind < 0.55:
            wanted = cards.ReserveFunds(
                reservation_id=uuid.uuid4().hex, table_id=table, amount=draw.randint(1, 400)
            )
            return self._to("player", player, wanted)
        if kind < 0.8:
            return self._to("table", table, cards.LeaveTable(player_id=player))
        other, sum_ = draw.choice(self.players), draw.randint(1, 300)
        gains = {player: sum_, other: -sum_} if other != player else {player: 0}
        hand = f"{self.id}-h{uuid.uuid4().hex[:6]}"
        return self._to("hand", hand, cards.SettleHand(table_id=table, gains=gains))

    def _to(self, domain: str, root: str, command: object) -> Callable[[], Any]:
        return lambda: self._app.send_command(command, domain=domain, root=root)

    def problems(self) -> list[str]:
        """Return what does not add up: money made or lost, or reserved for ever."""
        players = {player: self._app.load(self._cards.Player, player) for player in self.players}
        tables = {table: self._app.load(self._cards.Table, table) for table in self.tables}
        before = sum(self.bankrolls[name] for name, one in players.items() if one.state.registered)
        now = self._money(list(players.values()), list(tables.values()))
        found = [f"{now} in all, not {before}"] if now != before else []
        found += [
            f"{name} has {one.state.reserved} reserved, and neither a seat nor a release"
            for name, one in players.items()
            if one.state.reserved
        ]
        found += [
            f"{name} is below zero" for name, one in players.items() if one.state.bankroll < 0
        ]
        found += [
            f"{name} has chips below zero"
            for name, one in tables.items()
            if any(seat.chips < 0 for seat in one.state.taken.values())
        ]
        return found


@contextmanager
def _moody(player: type, chance: random.Random) -> Iterator[None]:
    """Let compensation itself fail now and then: in passing, or for good."""
    sane = player.seat_refused

    def moody(self: Any, refused: Any) -> Any:
        drawn = chance.random()
        if drawn < 0.15:
            raise ConnectionError("the network is moody")
        if drawn < 0.25:
            raise RuntimeError("a bug, until somebody mends it")
        return sane(self, refused)

    player.seat_refused = moody
    try:
        yield
    finally:
        player.seat_refused = sane


def _count(cases: list[Case]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for case in cases:
        counts[case.status.value] = counts.get(case.status.value, 0) + 1
    return counts


def _untold(cases: list[Case]) -> list[str]:
    return [
        f"{case.command_type} of {case.source} waits"
        for case in cases
        if case.status is RejectionStatus.TOLD
    ]
