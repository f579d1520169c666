"""Outcome: what becomes of one delivery (spec D6): a closed union; settle makes it true."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from angzarr.dead_letters.letter import DeadLetter
from angzarr.delivery.turn import Turn
from angzarr.errors import text_of
from angzarr.ordering.lane import Moved
from angzarr.resilience.taxonomy import Classification


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The handler finished. `result` is the value's JSON text, kept for duplicates."""

    value: Any = None
    result: str | None = None
    #: What the handler raised to say that it finished (Celery's Ignore), told on as it is.
    raised: BaseException | None = None
    #: Whether a log of finished steps may be there, which ends with the claim.
    clears: bool = False
    #: How its run moved its lane; None: it has none, or settle moves it.
    moved: Moved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The event was handled before; `value` is the result of that run, if it was `kept`.

    `claimed` tells whether this delivery holds the event: then its lane knew.
    """

    value: Any = None
    kept: bool = True
    claimed: bool = False
    #: Whether that run ended as `Skipped`: then nothing follows it.
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The event failed for good before and its letter is written; `error` says how."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A later copy of this event exists; this one ends here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A business refusal: said by the handler, or `seen` and skipped by a rule (spec D2).

    Or a person dropped it.
    """

    reason: str
    seen: Classification | None = None
    #: The id of the switch that dropped it, if that is why.
    switch: str | None = None
    #: Whether a log of finished steps may be there, which ends with the claim.
    clears: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """To be run later, no attempt used; `claimed` tells whether this delivery holds the event."""

    delay: timedelta
    why: str
    claimed: bool
    #: Whether its handler's `max_age` bounds how long it is put off for such reasons in a row.
    held: bool = False
    #: The open breaker it waits for, if that is why.
    breaker: str | None = None
    #: The domain that is held back for a poison wave, if that is why.
    wave: str | None = None
    #: Whether it waits for a read model that is being replaced.
    shut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """It came before its turn and waits in its lane, which is at `next_sequence`; no attempt used.

    Whoever moves the lane to it lets it come again (spec P3).
    """

    turn: Turn
    next_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """To be run again after `delay`, one attempt used."""

    delay: timedelta
    error: Exception
    seen: Classification
    max_attempts: int
    #: The body of the copy where the handler asked for other arguments; None: as received.
    body: bytes | None = None
    #: Whether the handler gave it back to its queue: code that looks for `redelivered` finds it.
    requeued: bool = False
    #: The error's text where that must not show all of it; None: it may.
    shown: str | None = None

    @property
    def text(self) -> str:
        """What facts, spans and log lines say of the error."""
        return text_of(self.error) if self.shown is None else self.shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """Not to be run again until somebody understands why."""

    letter: DeadLetter
    error: Exception
    claimed: bool


Outcome: TypeAlias = (
    Handled
    | Duplicate
    | Refused
    | Superseded
    | Skipped
    | Postponed
    | Parked
    | Retried
    | DeadLettered
)

#: The word for each outcome in facts, logs and metrics.
WORDS: dict[type[Outcome], str] = {
    Handled: "handled",
    Duplicate: "duplicate",
    Refused: "duplicate",
    Superseded: "duplicate",
    Skipped: "skipped",
    Postponed: "postponed",
    Parked: "parked",
    Retried: "retried",
    DeadLettered: "dead_lettered",
}


def ended_early(outcome: Outcome | None) -> bool:
    """Tell whether what was to follow *outcome* never will, although it is no failure."""
    return isinstance(outcome, Skipped) or (isinstance(outcome, Duplicate) and outcome.skipped)
