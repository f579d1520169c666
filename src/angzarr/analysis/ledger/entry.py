"""Entry: one event that one handler could not handle, as the ledger keeps it (spec A2). Values.

What may become of an entry stands in `transition`; the ledger only stores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder
from angzarr.dead_letters.fingerprint import fingerprint
from angzarr.dead_letters.letter import (
    PROJECTOR,
    DeadLetter,
    ForeignCover,
    Mismatch,
    Reason,
    holds_up,
    unreadable_letter_id,
)
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.recognition import Recognised, recognise
from angzarr.dead_letters.record import ForeignRecord, record_id
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.payloads.store import PayloadReference

#: The reason of an entry whose letter could not be read.
UNREADABLE = "unreadable"


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


#: Entries that nobody is done with.
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
    PERSON = "person"  # somebody brought it back
    #: It is not held: what was sent of it is parked in its lane, behind an earlier event.
    LANE = "lane"


class FailureClass(StrEnum):
    """What kind of failure an entry is (spec A3, decisions 24)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A dead letter whose own bytes could not be read; kept as they came.

    `record` is what carried them: key, headers, properties and place of another system's message.
    """

    domain: str
    raw: bytes
    content_type: str
    problem: str
    received_at: datetime
    record: ForeignRecord | None = None

    @property
    def id(self) -> str:
        """The hash of domain, place and bytes (decisions 21)."""
        return record_id(self.domain, self.raw, self.record)

    @property
    def told(self) -> Recognised:
        """What another system says of its message in ways that are known here."""
        return recognise(self.raw, self.content_type, self.record)

    def as_raw_letter(self) -> RawLetter:
        """Return it as it travels and is kept."""
        return RawLetter(
            domain=self.domain, raw=self.raw, content_type=self.content_type, record=self.record
        )


#: What is filed in the ledger.
Failure: TypeAlias = DeadLetter | Unreadable


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
    #: Letters that told of this failure, one for each replay that failed.
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
        """Whether later events of its aggregate wait until it is handled or skipped."""
        return holds_up(self.component_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """What happened to an entry, who did it, and when."""

    at: datetime
    who: str
    what: str
    detail: str = ""
    #: Set where a letter was filed: its id, and the replay whose failure it tells of.
    letter_id: str | None = None
    replay: int | None = None


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
        """What else is known of the event and of the worker that failed on it."""
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


def context_of(failure: Unreadable) -> dict[str, Any]:
    """Return what is known of bytes that are no letter, and of what carried them."""
    known = {"content_type": failure.content_type, "problem": failure.problem}
    if failure.record is not None:
        shown = failure.record.as_json()
        known |= failure.told.known
        known |= {name: shown[name] for name in ("broker", "place", "key", "headers", "properties")}
    return {name: value for name, value in known.items() if value not in (None, "", {}, [])}


def entry_id_of(failure: Failure) -> str:
    """Return the id of *failure*'s entry: one for (handler, event), else its raw hash (21).

    What a letter says of itself is not enough: two letters that claim one id have two entries,
    and so has a second body under one event id, which must not replace the first.
    """
    if isinstance(failure, Unreadable):
        return failure.id
    if failure.event is not None and failure.reason is Reason.CONFLICT:
        return _hash(failure.handler, failure.event.id, failure.id)
    if failure.event is not None:
        return _hash(failure.handler, failure.event.id)
    if failure.payload is not None:  # the body that would name it is elsewhere
        where = (failure.message.queue, failure.payload.sha256)
        return _hash(failure.id, *where, failure.envelope.hex())
    raw = unreadable_letter_id(failure.message.queue, failure.message.body)
    return raw if failure.id == raw else _hash(failure.id, raw, failure.envelope.hex())


def replay_of(failure: Failure) -> int:
    """Return the replay whose failure *failure* tells of; 0: the first delivery."""
    return failure.replay if isinstance(failure, DeadLetter) else 0


def payload_of(failure: Failure) -> PayloadReference | None:
    """Return where *failure*'s body is, or None where the letter holds it."""
    return failure.payload if isinstance(failure, DeadLetter) else None


def event_id_of(failure: Failure) -> str:
    """Return the id of the event inside, or an empty string where it could not be read."""
    event = _event(failure)
    return event.id if event else ""


def explanation_of(failure: Failure) -> str:
    """Return in one sentence what failed."""
    if isinstance(failure, Unreadable):
        return "; ".join(filter(None, (failure.told.said, failure.problem)))
    return failure.explanation or failure.error_message


def replayed_letter_of(failure: Failure) -> str | None:
    """Return the id of the letter whose replay failed, or None for a first failure."""
    if isinstance(failure, Unreadable) or failure.replay < 1:
        return None
    found = failure.message.headers.get(names.LETTER_ID)
    return found if isinstance(found, str) and found else None


def facts_of(failure: Failure) -> dict[str, Any]:
    """Return the fields of an entry that its last letter fixes."""
    if isinstance(failure, Unreadable):
        return _facts_of_unreadable(failure)
    letter, event = failure, failure.event
    cover = letter.cover or ForeignCover()
    # Others name no handler: their component is what failed, and what people look for. What is ours
    # and could not be read has none, and our component is the app.
    handler = letter.handler or (letter.component if letter.envelope else "")
    return {
        "handler_name": handler,
        "event_id": event.id if event else "",
        "event_type": (event.type if event else "") or letter.message.task or cover.event_type,
        "domain": letter.domain,
        "tenant_id": (event and event.tenant_id) or "",
        "correlation_id": (event and event.correlation_id) or cover.correlation_id,
        "root": (event and event.root) or cover.root,
        "reason": letter.reason.value,
        "category": letter.category,
        "error_type": letter.error_type,
        "error_code": letter.error_code,
        "error_message": letter.error_message or letter.explanation,
        "fingerprint": letter.fingerprint
        or fingerprint(
            handler=handler,
            error_type=letter.error_type,
            message=letter.error_message,
            stack=letter.error_stack,
        ),
        "component_type": letter.component_type,
        "worker": letter.worker,
        "version": letter.version,
        "retry_count": max(0, letter.attempts - 1),
        "last_failed_at": letter.last_attempt_at or letter.sent_to_dlq_at,
        "letter_id": letter.id,
        "letter_replay": letter.replay,
    }


def first_failed_at(failure: Failure) -> datetime:
    """Return when the event first failed, as far as *failure* knows."""
    if isinstance(failure, Unreadable):
        return failure.received_at
    return failure.first_attempt_at or failure.last_attempt_at or failure.sent_to_dlq_at


def counted(count: int) -> str:
    """Return *count* entries in words: ``1 entry``, ``3 entries``."""
    return "1 entry" if count == 1 else f"{count} entries"


def _facts_of_unreadable(failure: Unreadable) -> dict[str, Any]:
    told = failure.told
    message = told.error_message or failure.problem
    return {
        "handler_name": told.component,
        "event_id": told.event_id,
        "event_type": told.event_type,
        "correlation_id": told.correlation_id,
        "domain": failure.domain,
        "reason": UNREADABLE,
        "error_type": told.error_type,
        "error_code": "UNREADABLE",
        "error_message": message,
        "fingerprint": fingerprint(
            handler=told.component,
            error_type=told.error_type or UNREADABLE,
            message=message,
            stack="",
        ),
        "last_failed_at": failure.received_at,
        "letter_id": failure.id,
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _event(failure: Failure) -> Event | None:
    return failure.event if isinstance(failure, DeadLetter) else None
