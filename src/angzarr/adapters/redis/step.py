"""The step script: what goes in and what comes out; see ``step.lua``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from angzarr.adapters.redis.link import Argument, Script

STEP = Script("step.lua", frees=True, functions={"settle": "settle.lua"})


class Fetched(NamedTuple):
    """One message that is ours."""

    tag: str
    queue: str
    raw: bytes
    #: The list it came from.
    origin: str


class Ending(NamedTuple):
    """How a claim ends in the step that lets its message go (see ``settle.lua``)."""

    record: str
    args: tuple[Argument, ...]
    #: Called if another holds the claim by now.
    on_fenced: Callable[[], None]


class Done(NamedTuple):
    """A message to let go, and the claim that ends with it."""

    tag: str
    ending: Ending | None = None

    def args(self) -> tuple[Argument, ...]:
        """Return what the step script takes."""
        if self.ending is None:
            return (self.tag, 0)
        return (self.tag, len(self.ending.args) + 1, self.ending.record, *self.ending.args)


class Lists(NamedTuple):
    """The lists to fetch from: all queues at the highest priority first."""

    names: list[str]
    queues: list[str]
    fair: bool


def flat(done: Sequence[Done]) -> list[Argument]:
    """Return what the script takes to let go of *done*."""
    return [arg for one in done for arg in one.args()]
