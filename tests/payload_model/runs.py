"""Runs: one random history of bodies, and what is left when all is quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from angzarr.clock import Clock
from payload_model.crashes import Crash
from payload_model.ground import Ground, in_memory
from payload_model.world import CONTENTS, GRACE, World

STEPS = 40
#: How many times as often as it must a quiet end is asked to go on.
_ENOUGH = 2000


@dataclass(slots=True)
class Account:
    """What a run came to."""

    #: Bodies that were deleted and needed; empty: none.
    wrong: list[str]
    #: Bodies that are left at the end, with who holds them.
    left: dict[str, set[str]] = field(default_factory=dict)
    #: Those of them that no event holds which was published again while a later copy waited.
    unexplained: dict[str, set[str]] = field(default_factory=dict)
    kills: int = 0
    deleted: int = 0


def run(
    seed: int,
    *,
    rate: float = 0.02,
    seals: bool = False,
    ground: Callable[[Clock], Ground] = in_memory,
) -> Account:
    """One history on *ground*, in which each call is the last of its process at *rate*.

    *seals*: what is stored is encrypted, and so has another name each time.
    """
    world = World(seed, rate=rate, seals=seals, ground=ground)
    world.beside = lambda: _act(world)
    for _ in range(STEPS):
        _step(world)
        world.check_all()
        if world.problems:
            return Account(world.problems)
    put = len(world.bodies.known)
    world.killer.rate, world.beside = 0.0, None
    _quiet(world)
    left = {one.uri: world.holders.holders_of(one.uri) for one in world.bodies.find_all()}
    if left.keys() != world.bodies.known:
        world.problems.append("the store has others than those that were put and not deleted")
    again = tuple(f":{event}#" for event in world.superseded)
    unexplained = {
        uri: who for uri, who in left.items() if not any(map("".join(who).__contains__, again))
    }
    return Account(world.problems, left, unexplained, world.killer.kills, put - len(left))


def _step(world: World) -> None:
    try:
        _act(world)
    except Crash:
        world.connect()


def _act(world: World) -> None:
    chance, queue, entries = world.chance, world.queue, world.ledger.entries
    match chance.randrange(16):
        case 0 | 1 | 2:
            world.publish(f"e{chance.randrange(world.events)}", chance.choice(CONTENTS))
        case 3 | 4 | 5 | 6 if queue:
            world.deliver(chance.randrange(len(queue)))
        case 7 if queue:  # a broker delivers at least once
            queue.append(chance.choice(queue))
        case 8 | 12 if world.letters.waiting:
            world.ingest()
        case 9 | 13 if entries:
            edited = chance.choice((None, None, chance.choice(CONTENTS)))
            world.replay(chance.choice(sorted(entries)), edited)
        case 10:
            if closed := world.removable():
                world.killer.around(world.ledger.remove)(closed, chance)
            if chance.random() < 0.5:  # it may come much later
                world.upkeep.remove(world.clock.now())
        case 11 | 14:
            world.collect(chance.choice((1, 100)))
            world.late.catch_up()
        case _:
            world.let_pass(timedelta(hours=chance.choice((1, 20, 30, 100))))


def _quiet(world: World) -> None:
    """Let everything come to its end, and the grace period pass."""
    for _ in range(_ENOUGH):
        world.check_all()
        if world.queue:
            try:
                world.deliver(world.chance.randrange(len(world.queue)))
            except Crash:
                world.connect()
        elif world.letters.waiting:
            world.ingest()
        else:
            break
    world.ledger.clear()
    world.upkeep.remove(world.clock.now())
    for _ in range(20):
        world.let_pass(GRACE)
        try:
            world.collect()
        except Crash:
            continue
    world.late.catch_up()
