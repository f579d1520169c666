"""Claims: one event is run by one delivery at a time, and never again once it is completed.

The record of a (handler, event) pair and its states (spec D4):

    absent ──claim──► pending ──complete──► completed   nothing passes but a claim anew
                      ▲ │ │ └─────fail────► failed      a higher replay number passes
                      │ │ └────wait───────► waiting     the published copy, or a later one, passes
                      │ └───release───────► released    the message given back, or a later one
                      └──claim── failed, waiting, released, or pending with a dead owner

A delivery below the position of a record that is pending, waiting or released is superseded.
A pending record whose owner is dead is taken over: that counts a start and fences the old
delivery. Every change of a pending record names the token of the delivery that holds it; a late
owner's change does nothing and says so. `idempotency_rules` holds the transitions.

Keys are deterministic, collision-free, bounded and readable. No builder reads a clock or makes
anything random: the time in a key is the event's `occurred_at`, the nonce of an external call comes
from the event id and the call's number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol, TypeAlias

from angzarr.payloads.holders import PayloadHold
from angzarr.runtime.fast_init import fast_init

#: Longest part of a key, in characters, that is written out whole.
MAX_PART = 200

#: The same for the parts of a built key, so that the whole stays below `MAX_PART`.
MAX_NAME = 60

#: Hex digits of the digest of a part that was cut: 160 bits.
_DIGEST = 40

#: What never stands in a part: our separator, our escape, and what Redis, SQL or a terminal
#: cannot carry (control characters, spaces, lone surrogates).
_UNSAFE = re.compile("[%:\x00-\x20\x7f\ud800-\udfff]")
_UNSAFE_OR_UNDERSCORE = re.compile("[%:_\x00-\x20\x7f\ud800-\udfff]")


def key_part(text: str, limit: int = MAX_PART) -> str:
    """*text* as a part of a key, percent-escaped; no two texts give the same part.

    A part longer than *limit* characters keeps its head and gets a digest behind ``%.``,
    which no escape looks like.
    """
    if len(text) <= limit and _UNSAFE.search(text) is None:
        return text  # nearly all are
    return _bounded(text, _UNSAFE.sub(_escape, text), limit)


def printable_part(text: str) -> str:
    """`key_part` with all escaped that cannot be printed: people read it and type it."""
    free = (one if one.isprintable() else _percent(one) for one in _UNSAFE.sub(_escape, text))
    return _bounded(text, "".join(free), MAX_PART)


def fact_key(type_: str, occurred_at: datetime, entity: str) -> str:
    """``fact_{type}_{ts}_{entity}``."""
    return f"fact_{_free(type_)}_{_time(occurred_at)}_{_tight(entity)}"


def entity_key(type_: str, entity_id: str, occurred_at: datetime) -> str:
    """``entity_{type}_{id}_{ts}``."""
    return f"entity_{_free(type_)}_{_tight(entity_id)}_{_time(occurred_at)}"


def config_key(config_id: str, version: str, occurred_at: datetime) -> str:
    """``config_{id}_{version}_{ts}``."""
    return f"config_{_free(config_id)}_{_tight(version)}_{_time(occurred_at)}"


def external_key(tool: str, operation: str, event_id: str, call: int) -> str:
    """``external_{tool}_{op}_{nonce}``; *call* counts one handler run's calls from 1.

    The same call of another attempt of the event has the same key, as the other side needs it.
    """
    return f"external_{_tight(tool)}_{_free(operation)}_{_tight(event_id)}-{call}"


def owner_lease_key(prefix: str, owner: str) -> str:
    """The key of *owner*'s lease in Redis: its claims and its messages hang on it."""
    return f"{prefix}:owner:{owner}"


def _free(text: str) -> str:
    """One part of each key may hold underscores; the parts to its left and right may not."""
    return key_part(text, MAX_NAME)


def _tight(text: str) -> str:
    return _bounded(text, _UNSAFE_OR_UNDERSCORE.sub(_escape, text), MAX_NAME)


def _time(moment: datetime) -> str:
    """Write *moment* in UTC with microseconds; a naive time would differ between machines."""
    if moment.tzinfo is None:
        msg = f"a key needs an aware time, not {moment!r}: its zone is unknown"
        raise ValueError(msg)
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _escape(match: re.Match[str]) -> str:
    return _percent(match[0])


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _bounded(text: str, safe: str, limit: int) -> str:
    if len(safe) <= limit:
        return safe
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{safe[: limit - _DIGEST - 2]}%.{digest}"


#: How long a record is kept after it was last settled (spec D4).
RECORD_LIFE = timedelta(hours=24)


class Position(NamedTuple):
    """How far an event has come: replays from the dead-letter queue, then published copies."""

    replay: int = 0
    hop: int = 0


#: Where every event starts.
FIRST = Position()


@fast_init
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
    #: with its worker without ever having run.
    counted: bool = True
    #: Whether it takes an event that was completed: its lane was set back before it (spec P4).
    anew: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The delivery holds the event; `starts` counts unsettled claims, this one included.

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
class SupersededClaim:
    """A later copy of this event exists; this delivery is history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The same key was used for another body."""


ClaimAnswer: TypeAlias = (
    Claimed | InProgress | AlreadyCompleted | AlreadyFailed | SupersededClaim | Conflict
)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The event was handled; keep `result` (JSON text) for duplicates."""

    result: str | None = None
    life: timedelta = RECORD_LIFE
    #: The replay number whose log of finished steps is deleted with it; None: there is none.
    steps: int | None = None
    #: The body that the event needs no more, if its message had one in the payload store (F4).
    releases: PayloadHold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The event failed for good; keep `error` (JSON text) for duplicates."""

    error: str = "{}"
    life: timedelta = RECORD_LIFE
    #: As of `Complete`: its letter holds the body by itself.
    releases: PayloadHold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A copy at `position`, a hop further in the same replay, will come back after `delay`."""

    position: Position
    delay: timedelta = timedelta(0)
    life: timedelta = RECORD_LIFE
    #: The body that the copy needs no more, as it has another one.
    releases: PayloadHold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The delivery is given back: the next one may claim.

    The position stays, so that an older copy is still superseded. The start stays `counted`
    where the process that ran it died, and only there: that is what makes poison.
    `was_counted` says what the claim itself said. The next claim gets the
    `last_words`, if there are any.
    """

    counted: bool = False
    was_counted: bool = True
    last_words: str = ""


Ending: TypeAlias = Complete | Fail | Wait | Release


def released_by(ending: Ending) -> PayloadHold | None:
    """The hold of a body that ends with *ending*, if any."""
    return None if isinstance(ending, Release) else ending.releases


class ClaimEnd(NamedTuple):
    """The end of one claim: the record's key, the token that holds it, and how it ends."""

    key: str
    token: str
    ending: Ending
    #: Lines of facts (`fact_text`) that are kept in the outbox beside the claims with it.
    facts: Sequence[str] = ()


class IdempotencyStore(Protocol):
    """Where claims live. Every verb raises StoreUnavailable when the store does not answer.

    Each verb is atomic, and safe to send twice with the same token (a client may retry a call
    whose answer was lost).
    """

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer each claim in order. Sent again with the same token it gives the same answer."""

    def owns(self, key: str, token: str, /, facts: Sequence[str] = ()) -> bool:
        """True if the delivery with *token* still holds *key*.

        If so, the lines of *facts* are put in the outbox beside the claims in the same step; if
        not, none of them is. Sent again they are there twice, which sinks tell by their ids.
        """

    def settle(self, key: str, token: str, ending: Ending, /, facts: Sequence[str] = ()) -> bool:
        """End the claim; return False, having changed nothing, if *token* no longer holds it.

        The lines of *facts* are put in the outbox beside the claims in the same step, once, and the
        hold that the ending `releases` is released there.

        Sent again after it succeeded, it returns True again (the record remembers the token of
        the claim it ended); another kind of ending sent then returns False.
        """

    def settle_all(self, ends: Sequence[ClaimEnd], /) -> list[bool]:
        """Answer each of *ends* as `settle` would, in order, in one round trip.

        If this raises, some claims may have ended; it is safe to send all again.
        """


class OwnerLeases(Protocol):
    """Proof that a worker's process tree lives: while its lease runs, its claims hold.

    An owner without a lease is dead. Raises StoreUnavailable like the store itself.
    """

    def renew(self, owner: str, span: timedelta, /) -> None:
        """Let *owner*'s lease end *span* from now."""

    def end(self, owner: str, /) -> None:
        """End *owner*'s lease now (orderly shutdown); its pending claims can be taken over."""


def key_for(handler: str, event_id: str) -> str:
    """The deterministic, bounded and readable key of a (handler, event) pair (D4).

    No two pairs share a key; ``%``, ``:`` and what a store cannot carry is percent-escaped, and
    a part longer than `MAX_PART` characters keeps its head and gets a digest.
    """
    return f"idempotency:{key_part(handler)}:{key_part(event_id)}"
