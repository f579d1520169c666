"""Faults: what is done to workers and servers, when and how long, by a seed. Pure.

Two lanes run side by side, so that a server is away while a worker dies; within a lane a fault
begins only when the one before it is over, which may be later than planned.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

#: Seconds before the first fault, for the fleet to work; seconds between two of a lane.
WARM_UP: Final = 1.0
GAP: Final = (0.7, 2.0)
#: Seconds between two faults that both take the claim store away: leases are to be renewed.
STORE_GAP: Final = 4.5


class Kind(NamedTuple):
    """A kind of fault: its lane, how many seconds it lasts, and on which brokers it makes sense."""

    lane: str
    least: float
    most: float
    brokers: frozenset[str] = frozenset({"redis", "rabbitmq", "sqs"})
    #: It lasts too long for a short run; in long ones it comes with the others.
    long: bool = False


_RABBITMQ: Final = frozenset({"rabbitmq"})
#: The broker is not the store.
_APART: Final = frozenset({"rabbitmq", "sqs"})
#: The broker keeps its messages when it is killed.
_DURABLE: Final = frozenset({"redis", "rabbitmq"})

KINDS: Final = {
    # -- a worker
    "kill worker": Kind("fleet", 0, 0),
    "stop worker": Kind("fleet", 0, 0),
    "kill child": Kind("fleet", 0, 0),
    "freeze worker": Kind("fleet", 9.5, 11),  # beyond its lease of 8 s
    # RabbitMQ keeps the messages of a silent worker for two to three heartbeats of 10 s; SQS until
    # their visibility ends, and the first copy may find the claim still held.
    "lose worker": Kind("fleet", 32, 34, _APART, long=True),
    "freeze process": Kind("fleet", 9.5, 11),
    "kill server": Kind("fleet", 0, 0),
    "kill supervisor": Kind("fleet", 0, 0),
    "reload worker": Kind("fleet", 0, 0),
    "freeze child": Kind("fleet", 2, 4, long=True),
    "evict worker": Kind("fleet", 0, 0, long=True),
    "break log": Kind("fleet", 0, 0, long=True),
    "fill log": Kind("fleet", 2, 4, long=True),
    "freeze parent": Kind("fleet", 9.5, 11, long=True),  # its children go on
    "skew worker": Kind("fleet", 0, 0, long=True),
    "no files": Kind("fleet", 3, 6, long=True),
    "no threads": Kind("fleet", 3, 6, long=True),
    # -- a server, or the way to it
    "restart broker": Kind("servers", 0.2, 1.5, _DURABLE),
    "restart store": Kind("servers", 0.2, 1.5, _APART),
    "cut broker": Kind("servers", 0.5, 2.5, _APART),
    "cut store": Kind("servers", 0.5, 2.5),
    "cut letters": Kind("servers", 1, 4),
    "pause broker": Kind("servers", 0.5, 2.5, _APART),
    "pause store": Kind("servers", 0.5, 2.5),
    "pause letters": Kind("servers", 0.5, 2.5),
    "restart order": Kind("servers", 0.2, 1.5),
    "cut order": Kind("servers", 0.5, 2.5),
    "pause order": Kind("servers", 0.5, 2.5),
    "client pause": Kind("servers", 0.5, 2.0),
    "kill analyst": Kind("servers", 0, 0),
    "flood": Kind("servers", 0, 0),
    "half-open store": Kind("servers", 0, 0, long=True),
    "half-open letters": Kind("servers", 0, 0, long=True),
    "half-open order": Kind("servers", 0, 0, long=True),
    "half-open broker": Kind("servers", 0, 0, _APART, long=True),
    "fill store": Kind("servers", 1, 3, long=True),
    "fill broker": Kind("servers", 1, 3, _RABBITMQ, long=True),
    "store away": Kind("servers", 10, 15, long=True),
    "letters away": Kind("servers", 20, 30, long=True),
    "broker away": Kind("servers", 10, 30, _APART, long=True),
}

#: Faults after which every worker has to find its broker again, and how many seconds before the end
#: they are over: what waits meanwhile is to begin while the other lane goes on.
_OF_BROKER: Final = frozenset({"restart broker", "cut broker", "broker away", "fill broker"})
AFTERMATH: Final = 10.0
#: The same of a connection that is half-open: it is noticed later, and by RabbitMQ later still.
_HALF_OPEN: Final = frozenset({"half-open broker", "half-open letters"})
LONG_AFTERMATH: Final = 45.0

#: Faults that take the claim store away; on a Redis broker "restart broker" is one of them.
_OF_STORE: Final = frozenset(
    {"restart broker", "restart store", "cut store", "pause store", "client pause", "store away",
     "half-open store", "fill store"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, *at* seconds after the start at the earliest; *target* numbers the victim."""

    number: int
    kind: str
    lane: str
    at: float
    seconds: float
    target: int


def plan(
    seed: int, seconds: float, broker: str, only: Collection[str] = (), *, long: bool = False
) -> list[Fault]:
    """Return the faults of a run of *seconds*, in order; *only* some kinds if it is not empty."""
    usable = {
        name: kind
        for name, kind in KINDS.items()
        if broker in kind.brokers and (not only or name in only) and (long or not kind.long)
    }
    lanes = sorted({kind.lane for kind in usable.values()})
    on_redis = broker == "redis"
    of_store = _OF_STORE if on_redis else _OF_STORE - {"restart broker"}
    ends = {name: seconds - AFTERMATH for name in _OF_BROKER if not on_redis}
    ends |= dict.fromkeys(_HALF_OPEN, seconds - LONG_AFTERMATH)
    found = [
        fault for lane in lanes for fault in _lane(seed, seconds, lane, usable, of_store, ends)
    ]
    found.sort(key=lambda fault: fault.at)
    return [
        Fault(number=number, kind=name, lane=usable[name].lane, at=at, seconds=lasts, target=target)
        for number, (at, name, lasts, target) in enumerate(found, 1)
    ]


class _Drawn(NamedTuple):
    at: float
    kind: str
    seconds: float
    target: int


def _lane(
    seed: int,
    seconds: float,
    lane: str,
    kinds: dict[str, Kind],
    of_store: frozenset[str],
    ends: Mapping[str, float],
) -> Iterator[_Drawn]:
    """Yield the faults of one lane: all kinds in a drawn order, then all in another, and so on.

    What would not be over at the end, or by that in *ends*, is left out, and what comes after it is
    tried.
    """
    chance = random.Random(f"faults {lane} {seed}")
    names = [name for name, kind in kinds.items() if kind.lane == lane]
    at = WARM_UP
    back = -STORE_GAP  # when the store was back last
    while at < seconds:
        order = list(names)
        chance.shuffle(order)
        for name in order:
            lasts = chance.uniform(kinds[name].least, kinds[name].most)
            target, gap = chance.randrange(1_000), chance.uniform(*GAP)
            if name in of_store:
                at = max(at, back + STORE_GAP)
            if at + lasts > ends.get(name, seconds):
                continue
            back = at + lasts if name in of_store else back
            yield _Drawn(at, name, lasts, target)
            at += lasts + gap
        if not any(at + kinds[name].least <= ends.get(name, seconds) for name in names):
            return
