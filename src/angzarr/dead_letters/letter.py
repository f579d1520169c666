"""DeadLetter: one event that one handler could not handle, and why (spec L3). A value, no I/O.

Refusal: why a letter is not replayed, in one sentence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from angzarr.events.event import Event, Message
from angzarr.payloads.store import PayloadReference
from angzarr.runtime.fast_init import fast_init

#: Longest stack trace a letter carries, in characters; the end is kept, it names the cause.
MAX_STACK = 16_000
#: Longest error message a letter carries, in characters.
MAX_MESSAGE = 4_000
#: What kind of component failed. Behind a letter of an ordered handler or a projection the later
#: events of its aggregate wait; one of such a handler that has no place in a lane is a `HANDLER`'s.
HANDLER = "handler"
ORDERED_HANDLER = "ordered_handler"
PROJECTOR = "projector"
#: The time of a letter of others that does not say it; the code that files it knows better.
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)

#: The wire's merge strategies by number, without what their names begin with.
STRATEGIES = ("COMMUTATIVE", "STRICT", "AGGREGATE_HANDLES", "MANUAL")

_CUT = "[…]"


class Reason(StrEnum):
    """Why the event became a letter (spec L1)."""

    REFUSED = "refused"  # not retryable, or the handler gave up
    EXHAUSTED = "exhausted"  # all attempts used
    OUT_OF_TIME = "out_of_time"  # failed, and another run would begin after its expiry
    POISON = "poison"  # started too often, never finished
    UNDELIVERABLE = "undeliverable"  # could not be decoded or has no handler
    CONFLICT = "conflict"  # one idempotency key, two bodies
    TOO_OLD = "too_old"  # waited longer than its maximum age, or past its expiry
    REVOKED = "revoked"  # a person revoked the task
    SEQUENCE_MISMATCH = "sequence_mismatch"  # a stale command that a person must look at
    COMPENSATION = "compensation"  # nothing undid what led to a rejected command


class Mismatch(NamedTuple):
    """Where a command believed its aggregate to be, and where that was (spec C2)."""

    expected: int
    actual: int
    #: The number of the wire's MergeStrategy.
    strategy: int

    @property
    def strategy_name(self) -> str:
        """The strategy as people know it; a number that this release does not know as it is."""
        known = 0 <= self.strategy < len(STRATEGIES)
        return STRATEGIES[self.strategy] if known else str(self.strategy)

    def __str__(self) -> str:
        return f"expected sequence {self.expected}, the aggregate is at {self.actual}"

    def told(self) -> dict[str, int | str]:
        """The mismatch for programs."""
        return {
            "expected": self.expected,
            "actual": self.actual,
            "strategy": self.strategy_name.lower(),
        }


#: The errors of a body that is gone from its store, corrupt, in no store of this app, or encrypted
#: with a key that it does not have.
PAYLOAD_LOST: Final = frozenset(
    f"angzarr.errors.Payload{how}" for how in ("Gone", "Elsewhere", "Corrupt", "KeyMissing")
)


class ForeignCover(NamedTuple):
    """The facts in a letter of others about its event or command, which is not an event of ours."""

    root: str = ""
    correlation_id: str = ""
    #: The full name of the type of all its pages, or the first of several.
    event_type: str = ""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A letter. Times are UTC-aware; `attempts` counts handler runs, `replay` earlier replays."""

    id: str
    domain: str
    handler: str
    reason: Reason
    #: One sentence for people.
    explanation: str
    message: Message
    event: Event | None = None
    #: Where the message's body is, if it is not here: then `message.body` is empty and `event`
    #: has no data. Beside a sealed payload the message is whole, and names it in its headers.
    payload: PayloadReference | None = None
    error_type: str = ""
    error_code: str = "UNKNOWN"
    error_message: str = ""
    error_stack: str = ""
    #: The taxonomy's category (spec D2), e.g. ``transient``.
    category: str = "unknown"
    attempts: int = 0
    replay: int = 0
    first_attempt_at: datetime | None = None
    last_attempt_at: datetime | None = None
    sent_to_dlq_at: datetime
    #: Of a command that was refused as stale.
    mismatch: Mismatch | None = None
    fingerprint: str = ""
    worker: str = ""
    version: str = ""
    component: str = ""
    component_type: str = HANDLER
    #: Further facts of others; kept when a letter is read and sent again.
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: What a letter written by others holds beyond these fields (unknown fields, commands, pages
    #: of foreign types), as the codec read it. Where it is set, `message` and `event` are a view:
    #: the payload travels on as it came. Empty in letters of our own.
    envelope: bytes = field(default=b"", repr=False)
    #: What such a letter says of its payload, to be searched and shown; never acted on.
    cover: ForeignCover | None = None
    #: The canonical JSON that it was read from, if that says no more and no less; a changed copy
    #: has none. Its code sets it: `own_json`.
    canonical: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def is_elsewhere(self) -> bool:
        """True if the body that a replay sends has to be fetched first."""
        return self.payload is not None and not self.payload.is_sealed

    @property
    def lacks_payload(self) -> bool:
        """True if it failed because its body, which lies elsewhere, cannot be had from there."""
        return self.payload is not None and self.error_type in PAYLOAD_LOST

    @property
    def holds_up(self) -> bool:
        """True if later events of its aggregate wait until it is handled or skipped."""
        return holds_up(self.component_type)


def holds_up(component_type: str) -> bool:
    """True if later events wait behind what a component of this kind failed on."""
    return component_type in {ORDERED_HANDLER, PROJECTOR}


def letter_id(domain: str, handler: str, event_id: str, replay: int) -> str:
    """The letter's deterministic id: writing it twice is harmless."""
    return _hash(domain, handler, event_id, str(replay))


def unreadable_letter_id(queue: str, raw: bytes) -> str:
    """The id of a letter whose event could not be read."""
    return hashlib.sha256(queue.encode("utf-8", "surrogatepass") + b"\x00" + raw).hexdigest()


def cut_stack(stack: str) -> str:
    """*stack* in at most MAX_STACK characters; its end is kept."""
    return stack if len(stack) <= MAX_STACK else _CUT + stack[len(_CUT) - MAX_STACK :]


def cut_message(message: str) -> str:
    """*message* in at most MAX_MESSAGE characters; its beginning is kept."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - len(_CUT)] + _CUT


def _hash(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


class Refusal(str):
    """A reason that stands in for what was asked of a letter."""

    __slots__ = ()


class Distrusted(Refusal):
    """A reason to doubt who wrote the letter: nothing that it says decides what becomes of it."""

    __slots__ = ()


class NoTarget(Refusal):
    """Nothing here takes the message: no such handler, no such queue."""

    __slots__ = ()
