"""Failure: what is filed in the ledger, a dead letter or bytes that could not be read. Values.

What an entry says of its last failure is read here: its id, its facts, its explanation.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from angzarr.dead_letters.fingerprint import fingerprint
from angzarr.dead_letters.letter import (
    DeadLetter,
    ForeignCover,
    Reason,
    unreadable_letter_id,
)
from angzarr.dead_letters.metadata import trace_id
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.recognition import Recognised, recognise
from angzarr.dead_letters.record import ForeignRecord, record_id
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.payloads.store import PayloadReference

#: The reason of an entry whose letter could not be read.
UNREADABLE = "unreadable"


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
        """The hash of domain, place and bytes."""
        return record_id(self.domain, self.raw, self.record)

    @property
    def told(self) -> Recognised:
        """The facts of another system about its message, in the forms that are known here."""
        return recognise(self.raw, self.content_type, self.record)

    def as_raw_letter(self) -> RawLetter:
        """The letter as it travels and is kept."""
        return RawLetter(
            domain=self.domain, raw=self.raw, content_type=self.content_type, record=self.record
        )


#: What is filed in the ledger.
Failure: TypeAlias = DeadLetter | Unreadable


def context_of(failure: Unreadable) -> dict[str, Any]:
    """The facts about bytes that are no letter, and about the record that carried them."""
    known = {"content_type": failure.content_type, "problem": failure.problem}
    if failure.record is not None:
        shown = failure.record.as_json()
        known |= failure.told.known
        known |= {name: shown[name] for name in ("broker", "place", "key", "headers", "properties")}
    return {name: value for name, value in known.items() if value not in (None, "", {}, [])}


def entry_id_of(failure: Failure) -> str:
    """The id of *failure*'s entry: one for (handler, event), else its raw hash.

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
    """The replay whose failure *failure* tells of; 0: the first delivery."""
    return failure.replay if isinstance(failure, DeadLetter) else 0


def payload_of(failure: Failure) -> PayloadReference | None:
    """The place of *failure*'s body, or None where the letter holds it."""
    return failure.payload if isinstance(failure, DeadLetter) else None


def event_id_of(failure: Failure) -> str:
    """The id of the event inside, or an empty string where it could not be read."""
    event = _event(failure)
    return event.id if event else ""


def explanation_of(failure: Failure) -> str:
    """The failure in one sentence."""
    if isinstance(failure, Unreadable):
        return "; ".join(filter(None, (failure.told.said, failure.problem)))
    return failure.explanation or failure.error_message


def replayed_letter_of(failure: Failure) -> str | None:
    """The id of the letter whose replay failed, or None for a first failure."""
    if isinstance(failure, Unreadable) or failure.replay < 1:
        return None
    found = failure.message.headers.get(names.LETTER_ID)
    return found if isinstance(found, str) and found else None


def facts_of(failure: Failure) -> dict[str, Any]:
    """The fields of an entry that its last letter fixes."""
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
        "trace_id": trace_id(event.traceparent) if event and event.traceparent else "",
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
    """The time when the event first failed, as far as *failure* knows."""
    if isinstance(failure, Unreadable):
        return failure.received_at
    return failure.first_attempt_at or failure.last_attempt_at or failure.sent_to_dlq_at


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
