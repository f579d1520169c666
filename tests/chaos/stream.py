"""Stream: which events are published when, by a seed. Pure: the same seed, the same stream."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.fates import MOST_ATTEMPTS, STEPS, Fate
from chaos.garbage import KINDS

#: Bytes of an oversize event's text: more than the most that Kafka and SQS take by default.
OVERSIZE = 1_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One event to be published *at* seconds after the start."""

    number: int
    id: str
    fate: Fate
    at: float
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
    #: What is wrong with a raw message, a key of `garbage.KINDS`.
    kind: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The (handler, event id) pairs that must be accounted for; none for a raw message."""
        if self.fate.handlers == STEPS:  # each step of a chain is a task with an id of its own
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


def stream(seed: int, count: int, seconds: float, fates: Sequence[Fate]) -> list[Planned]:
    """Return *count* events spread over *seconds*; every fate comes before any comes by weight."""
    chance = random.Random(f"stream {seed}")
    drawn = list(fates)
    chance.shuffle(drawn)
    drawn += chance.choices(fates, [fate.weight for fate in fates], k=max(count - len(drawn), 0))
    moments = sorted(chance.uniform(0, seconds) for _ in drawn)
    kinds = list(KINDS)
    chance.shuffle(kinds)
    return [
        _planned(chance, number, fate, at, kinds)
        for number, (fate, at) in enumerate(zip(drawn, moments, strict=True))
    ]


def _planned(
    chance: random.Random, number: int, fate: Fate, at: float, kinds: Sequence[str]
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
        at=at,
        failures={"transient": failures, "exhausted": MOST_ATTEMPTS}.get(name, 0),
        seconds=long if name in ("slow", "fickle", "revoked") else brief,
        copies=copies if name == "duplicates" else 1,
        delay=delay if name == "delayed" else 0.0,
        size=OVERSIZE if name == "oversize" else 0,
        kind=kinds[number % len(kinds)] if name == "garbage" else name if fate.raw else "",
    )
