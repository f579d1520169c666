"""Claims: one event is run by one delivery at a time, and never again once it is completed.

The record of a (handler, event) pair and its states (spec D4, decisions 2, 4, 10, 11, 12):

    absent ──claim──► pending ──complete──► completed   nothing passes but a claim anew
                      ▲ │ │ └─────fail────► failed      a higher replay number passes
                      │ │ └────wait───────► waiting     the published copy, or a later one, passes
                      │ └───release───────► released    the message given back, or a later one
                      └──claim── failed, waiting, released, or pending with a dead owner

A delivery below the position of a record that is pending, waiting or released is superseded.
A pending record whose owner is dead is taken over: that counts a start and fences the old
delivery. Every change of a pending record names the token of the delivery that holds it; a late
owner's change does nothing and says so. `idempotency_rules` holds the transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeAlias

from angzarr.resilience.keys import key_part

#: How long a record is kept after it was last settled (spec D4).
RECORD_LIFE = timedelta(hours=24)


class Position(NamedTuple):
    """How far an event has come: replays from the dead-letter queue, then published copies."""

    replay: int = 0
    hop: int = 0


#: Where every event starts.
FIRST = Position()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a delivery asks for. `token` is unique per delivery, `owner` per process tree."""

    key: str
    token: str
    owner: str
    position: Position = FIRST
    #: Digest of the body; empty: not compared. Compared within one replay number only.
    fingerprint: str = ""
    #: Whether it counts as a start. One made when the message is fetched does not: it may die
    #: with its worker without ever having run (4).
    counted: bool = True
    #: Whether it takes an event that was completed: its lane was set back before it (spec P4).
    anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The delivery holds the event; `starts` counts claims nobody settled, this one included.

    A claim that is not counted adds nothing to it.
    """

    starts: int = 1
    #: Whether earlier runs may have left finished steps in the log beside the record.
    steps: bool = False
    #: What an earlier run said as it was released (`Release.last_words`), until one is settled.
    last_words: str = ""
    #: Until when its owner's lease runs for certain; `Tenure.claim` says it, and no store.
    sure_until: float = field(default=float("inf"), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InProgress:
    """A living owner holds the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCompleted:
    """The event was handled; `result` is its JSON text, or None where none was kept."""

    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyFailed:
    """The event failed for good at this replay number; `error` is JSON text."""

    error: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A later copy of this event exists; this delivery is history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The same key was used for another body."""


ClaimAnswer: TypeAlias = (
    Claimed | InProgress | AlreadyCompleted | AlreadyFailed | Superseded | Conflict
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The event was handled; keep `result` (JSON text) for duplicates."""

    result: str | None = None
    life: timedelta = RECORD_LIFE
    #: The replay number whose log of finished steps is deleted with it; None: there is none.
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The event failed for good; keep `error` (JSON text) for duplicates."""

    error: str = "{}"
    life: timedelta = RECORD_LIFE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A copy at `position`, a hop further in the same replay, will come back after `delay`."""

    position: Position
    delay: timedelta = timedelta(0)
    life: timedelta = RECORD_LIFE


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The delivery is given back: whoever comes next may claim.

    The position stays, so that an older copy is still superseded. The start stays `counted`
    where the process that ran it died, and only there: that is what makes poison (4).
    `was_counted` says what the claim itself said. Whoever claims next is told the
    `last_words`, if there are any.
    """

    counted: bool = False
    was_counted: bool = True
    last_words: str = ""


Ending: TypeAlias = Complete | Fail | Wait | Release


class IdempotencyStore(Protocol):
    """Where claims live. Every verb raises StoreUnavailable when the store does not answer.

    Each verb is atomic, and safe to send twice with the same token (a client may retry a call
    whose answer was lost).
    """

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer each claim in order. Sent again with the same token it gives the same answer."""

    def owns(self, key: str, token: str, /) -> bool:
        """Return whether the delivery with *token* still holds *key* (decisions 11)."""

    def settle(self, key: str, token: str, ending: Ending, /) -> bool:
        """End the claim; return False, having changed nothing, if *token* no longer holds it.

        Sent again after it succeeded, it returns True again (the record remembers the token of
        the claim it ended); another kind of ending sent then returns False.
        """


class OwnerLeases(Protocol):
    """Proof that a worker's process tree lives: while its lease runs, its claims hold (2).

    An owner without a lease is dead. Raises StoreUnavailable like the store itself.
    """

    def renew(self, owner: str, span: timedelta, /) -> None:
        """Let *owner*'s lease end *span* from now."""

    def end(self, owner: str, /) -> None:
        """End *owner*'s lease now (orderly shutdown); its pending claims can be taken over."""


def key_for(handler: str, event_id: str) -> str:
    """Return the deterministic, bounded and readable key of a (handler, event) pair (D4).

    No two pairs share a key; ``%``, ``:`` and what a store cannot carry is percent-escaped, and
    a part longer than `MAX_PART` characters keeps its head and gets a digest.
    """
    return f"idempotency:{key_part(handler)}:{key_part(event_id)}"
