"""The step script: what goes in and what comes out; see ``step.lua``.

A message that came back from workers that died says how often, by tabs before its JSON. Every
reader of JSON skips them, stock kombu's too, and nothing is parsed to count them: what kills its
reader has to be known before it is read. One stands for the first death, whose reason is unknown:
others were fetched with it. From then on a message is read alone, and one tab more is written down
meanwhile; so another stands for each worker that died reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from angzarr.adapters.redis.fact_outbox import KEEP_FACTS
from angzarr.adapters.redis.link import Argument, Script
from angzarr.adapters.redis.payload_holders import RELEASE_PAYLOADS

STEP = Script(
    "step.lua",
    frees=True,
    functions={**KEEP_FACTS, **RELEASE_PAYLOADS, "settle": "settle.lua"},
)


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
        """What the step script takes."""
        if self.ending is None:
            return (self.tag, 0)
        return (self.tag, len(self.ending.args) + 1, self.ending.record, *self.ending.args)


class Lists(NamedTuple):
    """The lists to fetch from: all queues at the highest priority first."""

    names: list[str]
    queues: list[str]
    fair: bool


def flat(done: Sequence[Done]) -> list[Argument]:
    """What the script takes to let go of *done*."""
    return [arg for one in done for arg in one.args()]


_MARK: Final = b"\t"


def deaths(raw: bytes) -> int:
    """The number of workers that died with *raw* in hand, as far as Redis says."""
    if not raw.startswith(_MARK):
        return 0
    return len(raw) - len(raw.lstrip(_MARK))


def without_deaths(raw: bytes) -> bytes:
    """*raw* as it was published."""
    return raw.lstrip(_MARK)


def after_death(raw: bytes, before: bytes) -> bytes:
    """*raw* as it comes back from a worker that died with it, as *before*, in hand."""
    return _MARK * max(deaths(before), 1) + raw


def with_deaths_of(raw: bytes, before: bytes) -> bytes:
    """*raw*, which was *before*, as its own worker gives it back."""
    return _MARK * deaths(before) + raw


def while_read(fetched: Fetched) -> bytes | None:
    """What the session holds of *fetched* while it is read; see `held`."""
    return held(fetched._replace(raw=_MARK + fetched.raw))


def held(fetched: Fetched) -> bytes | None:
    """What the session holds of *fetched*: its list, by its length, and the raw message.

    None where the list is not known here, and so not to be written.
    """
    name = fetched.origin.encode()
    return b"%d:%s%s" % (len(name), name, fetched.raw) if name else None
