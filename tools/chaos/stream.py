"""Stream: which events are published in which order, by a seed. Pure.

The same seed gives the same events in the same order, however many of them are taken.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat

from chaos.fates import MOST_ATTEMPTS, STEPS, Fate
from chaos.garbage import KINDS

#: Bytes of an oversize event's text: more than the most that Kafka and SQS take by default.
OVERSIZE = 1_200_000
#: Bytes of a large one's, which on other brokers than Redis lies in a payload store.
LARGE = 150_000
#: Events of batches that come together.
BURST = 8
#: Aggregates to which ordered events are dealt in turn.
LANES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One event, to be published `gap` seconds after the one before it at the earliest."""

    number: int
    id: str
    fate: Fate
    gap: float
    #: Failures before it succeeds.
    failures: int = 0
    #: How long its handler works, in seconds.
    seconds: float = 0.0
    #: How often it is published under one id.
    copies: int = 1
    #: Seconds before which it must not begin.
    delay: float = 0.0
    #: Characters of padding in its data.
    size: int = 0
    #: The aggregate of an ordered event, and its place there.
    root: str = ""
    sequence: int = 0
    #: What is wrong with a raw message, a key of `garbage.KINDS`.
    kind: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The (handler, event id) pairs that must be accounted for; none for a raw message."""
        if self.fate.in_steps:
            return tuple((name, f"{self.id}-{i}") for i, name in enumerate(STEPS, 1))
        return () if self.fate.raw else tuple((name, self.id) for name in self.fate.handlers)

    @property
    def data(self) -> dict[str, object]:
        """The event's data; it names its own fate."""
        return {
            "id": self.id,
            "fate": self.fate.name,
            "failures": self.failures,
            "seconds": self.seconds,
            "padding": "x" * self.size,
        }


def stream(seed: int, rate: float, fates: Sequence[Fate]) -> Iterator[Planned]:
    """Yield events without end, *rate* a second in the mean.

    Every fate comes before any comes by weight.
    """
    chance = random.Random(f"stream {seed}")
    first = list(fates)
    chance.shuffle(first)
    kinds = list(KINDS)
    chance.shuffle(kinds)
    weights = [fate.weight for fate in fates]
    by_weight = (chance.choices(fates, weights)[0] for _ in repeat(None))
    ordered = count()
    each = zip(first, repeat(1))
    for number, (fate, burst) in zip(count(), chain(each, _in_bursts(by_weight))):
        gap = chance.expovariate(rate / burst) if burst else 0.0
        planned = _planned(chance, number, fate, gap, kinds)
        if fate.name == "ordered":
            sequence, lane = divmod(next(ordered), LANES)
            planned = replace(planned, root=f"lane-{lane}", sequence=sequence)
        yield planned


def _in_bursts(fates: Iterable[Fate]) -> Iterator[tuple[Fate, int]]:
    """Yield each fate, and how many come with it at once, or 0 for those that follow."""
    for fate in fates:
        burst = BURST if fate.name == "batched" else 1
        yield fate, burst
        yield from repeat((fate, 0), burst - 1)


def _planned(
    chance: random.Random, number: int, fate: Fate, gap: float, kinds: Sequence[str]
) -> Planned:
    """Draw what *fate* leaves open, always in the same order."""
    brief, long = chance.uniform(0, 0.03), chance.uniform(0.3, 2.0)
    failures, copies = chance.randint(1, MOST_ATTEMPTS - 1), chance.randint(5, 25)
    delay = chance.choice([0.2, 1.0, 2.5, 5.0])
    name = fate.name
    return Planned(
        number=number,
        id=f"{name}-{number}",
        fate=fate,
        gap=gap,
        failures={
            "transient": failures,
            "exhausted": MOST_ATTEMPTS,
            "ordered": int(failures == 1),
            "batched": int(failures == 1),
            "large": int(failures == 1),
        }.get(name, 0),
        seconds=long if name in ("slow", "fickle", "revoked", "batched") else brief,
        copies=copies if name == "duplicates" else 1,
        delay=delay if name == "delayed" else 0.0,
        size={"oversize": OVERSIZE, "large": LARGE}.get(name, 0),
        kind=kinds[number % len(kinds)] if name == "garbage" else name if fate.raw else "",
    )
