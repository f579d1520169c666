"""Entry: one event that one handler could not handle, as the ledger keeps it (spec A2). Values.

`transition` says what may become of an entry. Workers of two releases share the ledger during a
rolling upgrade: a status that only the newer release knows is kept, logged once, and left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from angzarr.analysis.ledger.failure import Failure, Unreadable, _event, context_of
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder
from angzarr.dead_letters.letter import (
    PROJECTOR,
    DeadLetter,
    Mismatch,
    holds_up,
)
from angzarr.facts.act import ActKind
from angzarr.runtime.fast_init import fast_init, fast_replace


class Status(StrEnum):
    """Where an entry stands (spec A2)."""

    FAILED = "failed"  # filed, not yet classified
    WAITING = "waiting"  # to be replayed at `next_replay_at`
    HELD = "held"  # waits for a person
    RETRYING = "retrying"  # a replay is on its way
    RESOLVED = "resolved"
    SKIPPED = "skipped"
    ARCHIVED = "archived"
    ESCALATED = "escalated"
    COMPENSATED = "compensated"


#: Entries that need further work.
OPEN: Final = frozenset(
    {Status.FAILED, Status.WAITING, Status.HELD, Status.RETRYING, Status.ESCALATED}
)


#: How the ledger names what closed an entry whose replay was answered; people have other names.
BY_REPLAY: Final = "replay "
#: The same of an entry whose letter the app that wrote it has been given.
BY_HANDOVER: Final = "handover "


class Hold(StrEnum):
    """Why an entry is held; only what a rule held is replayed by itself once its cause is gone."""

    RULE = "rule"
    JOB = "job"  # a person's replay job replayed it, or has it
    ANSWER = "answer"  # its last replay was not answered, or could not be sent
    PERSON = "person"  # a person brought it back
    #: It is not held: what was sent of it is parked in its lane, behind an earlier event.
    LANE = "lane"


class FailureClass(StrEnum):
    """What kind of failure an entry is (spec A3)."""

    TRANSIENT_RESOLVED = "transient_resolved"
    TRANSIENT_ONGOING = "transient_ongoing"
    CONFIGURATION_ERROR = "configuration_error"
    DATA_CORRUPTION = "data_corruption"
    BUSINESS_REJECTION = "business_rejection"
    SEQUENCE_CONFLICT = "sequence_conflict"
    POISON = "poison"
    CODE_DEFECT = "code_defect"
    REVOKED = "revoked"
    TOO_OLD = "too_old"
    UNKNOWN = "unknown"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry without its letter. Times are UTC-aware; absent texts are empty."""

    id: str
    handler_name: str = ""
    event_id: str = ""
    event_type: str = ""
    domain: str = ""
    tenant_id: str = ""
    correlation_id: str = ""
    #: The aggregate that the event or command is of.
    root: str = ""
    #: Of the W3C trace context of its event.
    trace_id: str = ""
    reason: str = ""
    category: str = ""
    error_type: str = ""
    error_code: str = ""
    error_message: str = ""
    fingerprint: str = ""
    component_type: str = ""
    worker: str = ""
    version: str = ""
    #: Handler runs after the first one, in the replay that failed last.
    retry_count: int = 0
    #: Letters that reported this failure, one for each replay that failed.
    occurrences: int = 1
    first_failed_at: datetime
    last_failed_at: datetime
    #: The letter kept with the entry, and the replay whose failure it tells of.
    letter_id: str
    letter_replay: int = 0
    status: Status = Status.FAILED
    #: Set while it is held, or parked in its lane; None: it is neither, or a release before this
    #: one held it.
    hold: Hold | None = None
    failure_class: FailureClass | None = None
    #: Why the entry is classified as it is, one sentence.
    evidence: str = ""
    #: Number of the last replay; 0: never replayed.
    replays: int = 0
    next_replay_at: datetime | None = None
    #: When the broker confirmed the last replay; None: not yet.
    published_at: datetime | None = None
    #: When the analysis worker must look at the entry again; None: never by itself.
    wake_at: datetime | None = None
    resolved_by: str = ""
    resolved_at: datetime | None = None
    #: Counts changes; a change that names an older one does nothing.
    revision: int = 1

    @property
    def projection_name(self) -> str:
        """The handler's name where it is a projection, else empty."""
        return self.handler_name if self.component_type == PROJECTOR else ""

    @property
    def is_ordered(self) -> bool:
        """True if later events of its aggregate wait until it is handled or skipped."""
        return holds_up(self.component_type)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """A change of an entry, its author and its time."""

    at: datetime
    who: str
    what: str
    detail: str = ""
    #: Set where a letter was filed: its id, and the replay whose failure it tells of.
    letter_id: str | None = None
    replay: int | None = None
    #: Where it came from (`ActOrigin`), which the store says; None: that is unknown.
    origin: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDetail:
    """An entry with the letter that tells of its last failure, and all its history."""

    entry: Entry
    failure: Failure
    history: tuple[HistoryLine, ...]
    #: What the last replay was to be, if it was not the letter's message again.
    order: ReplayOrder = AS_IT_IS
    #: The letter as it was before the newest edit, whatever was replayed since; None: no edit.
    before: DeadLetter | None = None

    @property
    def unanswered(self) -> ReplayOrder:
        """The order of a replay that no letter has answered; empty: its failure is `failure`."""
        return self.order if self.entry.letter_replay < self.entry.replays else AS_IT_IS

    @property
    def event_data(self) -> Any:
        """The event's data, or None where it could not be read."""
        event = _event(self.failure)
        return event.data if event else None

    @property
    def mismatch(self) -> Mismatch | None:
        """Where a command that was refused as stale believed its aggregate to be."""
        return self.failure.mismatch if isinstance(self.failure, DeadLetter) else None

    @property
    def error_stacktrace(self) -> str:
        """The stack of the last failure."""
        if isinstance(self.failure, Unreadable):
            return self.failure.told.error_stack
        return self.failure.error_stack

    @property
    def context(self) -> Mapping[str, Any]:
        """Further facts about the event and the worker that failed on it."""
        if isinstance(self.failure, Unreadable):
            return context_of(self.failure)
        letter, event = self.failure, self.failure.event
        known = {
            "queue": letter.message.queue,
            "task": letter.message.task,
            "message_id": letter.message.id,
            "explanation": letter.explanation,
            "worker": letter.worker,
            "version": letter.version,
            "component": letter.component,
            "component_type": letter.component_type,
            "attempts": letter.attempts,
            "root": (event and event.root) or (letter.cover and letter.cover.root),
            "edition": event and event.edition,
            "sequence": event.sequence if event else None,
            "causation_id": event and event.causation_id,
            "config_pins": dict(event.config_pins) if event else None,
            "traceparent": event and event.traceparent,
            **letter.metadata,
        }
        return {name: value for name, value in known.items() if value not in (None, "", {})}


def counted(count: int) -> str:
    """*count* entries in words: ``1 entry``, ``3 entries``."""
    return "1 entry" if count == 1 else f"{count} entries"


class Change(NamedTuple):
    """An entry after a change, and what its history says of it; None: no line is worth it."""

    entry: Entry
    line: HistoryLine | None
    #: Kept with the replay that begins, if there is something to keep.
    order: ReplayOrder = AS_IT_IS
    #: What a person, a client or a rule did; None: it is no act, but what became of one.
    act: ActKind | None = None


def changed_to(entry: Entry, **fields: object) -> Entry:
    """*entry* with *fields*, one revision on; a hold ends with the status that it held."""
    if "status" in fields:
        fields = {"hold": None, **fields}
    return fast_replace(entry, revision=entry.revision + 1, **fields)


_log = logging.getLogger("angzarr.analysis")
_Word = TypeVar("_Word", bound=StrEnum)
_Told = TypeVar("_Told")

#: Words that are remembered to have been said; releases differ in a few.
_SAID: Final = 256
#: Characters of one that are said.
_SHOWN: Final = 80


def read_word(kind: type[_Word], text: str) -> _Word:
    """The word of *kind* that *text* is; one that is not among them is kept as it is."""
    try:
        word: _Word = kind(text)
    except ValueError:
        word = _newer(kind, text)
    return word


def is_known(word: StrEnum) -> bool:
    """True if this release knows *word*."""
    return word.name in type(word).__members__


def of_newer(told: Mapping[_Word, _Told]) -> dict[_Word, _Told]:
    """The values in *told* that this release does not know: not its to change."""
    return {word: said for word, said in told.items() if not is_known(word)}


@lru_cache(_SAID)
def say_newer(what: str) -> None:
    """Say once that the ledger has *what*, which a newer release wrote."""
    _log.warning("newer_release: the ledger has %s, which is left as it is to newer workers", what)


@lru_cache(_SAID)
def _newer(kind: type[_Word], text: str) -> _Word:
    """Make a word beside those that *kind* has, equal to *text*, and say so."""
    say_newer(f"the {kind.__name__} {text[:_SHOWN]!r}")
    word = str.__new__(kind, text)
    word._name_, word._value_ = "", text
    return word
