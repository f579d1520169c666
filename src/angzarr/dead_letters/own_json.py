"""The JSON of letters of our own, written without protobuf, which would take ten times as long.

It means the same to any reader of proto3 JSON; a test compares it with protobuf's.
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from angzarr.dead_letters.letter import DeadLetter, Mismatch, cut_message
from angzarr.dead_letters.metadata import write_metadata
from angzarr.dead_letters.task_message import (
    EVENT_TEXTS,
    MAX_UINT32,
    STORAGE_NUMBERS,
    data_apart,
    in_int32,
    in_uint64,
    split_body,
)
from angzarr.dead_letters.text import to_json_text
from angzarr.events.event import Event, Message
from angzarr.payloads.store import PayloadReference
from angzarr.wire.book_pb2 import MergeStrategy, PayloadStorageType

_SHORTEST_UUID: Final = 32
#: Characters of a time in ISO 8601 up to its seconds, and of its offset.
_SECONDS: Final = len("2026-01-02T03:04:05")
_OFFSET: Final = len("+00:00")
#: The texts of a message, each with the name of its field in TaskMessage.
MESSAGE_TEXTS: Final[Mapping[str, str]] = {
    "task": "task",
    "content_type": "contentType",
    "content_encoding": "contentEncoding",
    "queue": "queue",
    "exchange": "exchange",
    "routing_key": "routingKey",
}
_message_texts: Final = operator.attrgetter(*MESSAGE_TEXTS)
_event_texts: Final = operator.attrgetter(*EVENT_TEXTS)
TASK_MESSAGE_URL: Final = "type.googleapis.com/angzarr.worker.TaskMessage"


def write_own(letter: DeadLetter) -> dict[str, Any]:
    """Return *letter*, which has no envelope, as a JSON object; its texts may be no valid UTF-8."""
    task_message = _task_message(letter.message, letter.event)
    if letter.payload is not None:
        task_message["payload"] = _reference(letter.payload)
    written = payload_of(letter, task_message)
    written["metadata"] = write_metadata(letter)
    if letter.explanation:
        written["rejectionReason"] = cut_message(letter.explanation)
    if letter.component:
        written["sourceComponent"] = letter.component
    if letter.component_type:
        written["sourceComponentType"] = letter.component_type
    return written


def payload_of(letter: DeadLetter, task_message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a letter says besides what it restates each time it is written."""
    event = letter.event
    cover = _cover(letter.domain, event)
    page: dict[str, Any] = {"event": task_message}
    if event is not None:
        if event.sequence is not None and 0 <= event.sequence < MAX_UINT32:
            page["header"] = {"sequence": event.sequence}
        if event.occurred_at is not None:
            page["createdAt"] = _stamp(event.occurred_at)
    return {
        "cover": cover,
        "occurredAt": _stamp(letter.sent_to_dlq_at),
        "rejectedEvents": {"cover": cover, "pages": [page]},
        **_details(letter),
    }


def event_facts(event: Event, data: str | None) -> dict[str, Any]:
    """Return *event* as EventFacts; *data* is its JSON where the task's args do not hold it."""
    facts: dict[str, Any] = {
        key: value
        for key, value in zip(EVENT_TEXTS.values(), _event_texts(event), strict=True)
        if value is not None
    }
    if event.id:
        facts["id"] = event.id
    if event.type:
        facts["type"] = event.type
    if priority := event.priority.value:
        facts["priority"] = priority
    if event.sequence is not None and in_uint64(event.sequence):
        facts["sequence"] = str(event.sequence)
    if event.occurred_at is not None:
        facts["occurredAt"] = _stamp(event.occurred_at)
    if event.config_pins:
        facts["configPins"] = {str(key): str(value) for key, value in event.config_pins.items()}
    if data is not None:
        facts["data"] = data
    if event.depth and in_uint64(event.depth):
        facts["depth"] = str(event.depth)
    return facts


def _cover(domain: str, event: Event | None) -> dict[str, Any]:
    cover: dict[str, Any] = {"domain": domain} if domain else {}
    if event is None:
        return cover
    if event.correlation_id:
        cover["correlationId"] = event.correlation_id
    if event.edition:
        cover["edition"] = {"name": event.edition}
    if event.root and (root := _uuid(event.root)):
        cover["root"] = {"value": _base64(root.bytes)}
    return cover


def _details(letter: DeadLetter) -> dict[str, Any]:
    """Return why it failed, as the details of one kind."""
    if letter.mismatch is not None:
        return {"sequenceMismatch": _mismatch(letter.mismatch)}
    details: dict[str, Any] = {}
    if letter.error_message:
        details["error"] = cut_message(letter.error_message)
    if letter.attempts > 0:
        details["retryCount"] = min(letter.attempts, MAX_UINT32 - 1)
    if letter.category == "transient":
        details["isTransient"] = True
    return {"eventProcessingFailed": details}


def _mismatch(mismatch: Mismatch) -> dict[str, Any]:
    """Return the details; as canonical JSON, without what is 0."""
    told: dict[str, Any] = {
        "expectedSequence": min(max(mismatch.expected, 0), MAX_UINT32 - 1),
        "actualSequence": min(max(mismatch.actual, 0), MAX_UINT32 - 1),
    }
    told = {name: number for name, number in told.items() if number}
    if mismatch.strategy:
        known = mismatch.strategy in MergeStrategy.values()
        told["mergeStrategy"] = (
            MergeStrategy.Name(mismatch.strategy) if known else mismatch.strategy
        )
    return told


def _task_message(message: Message, event: Event | None) -> dict[str, Any]:
    written: dict[str, Any] = {"@type": TASK_MESSAGE_URL}
    split = split_body(message.body)
    if split:
        written["args"], written["kwargs"], written["embed"] = split.body
    elif message.body:
        written["rawBody"] = _base64(message.body)
    texts = zip(MESSAGE_TEXTS.values(), _message_texts(message), strict=True)
    written.update((key, text) for key, text in texts if text)
    written["headers"] = to_json_text(dict(message.headers))
    if message.properties:
        written["properties"] = to_json_text(dict(message.properties))
    if message.priority is not None and in_int32(message.priority):
        written["priority"] = message.priority
    if event is not None:
        written["event"] = event_facts(event, data_apart(event, split.first if split else None))
    return written


def _reference(payload: PayloadReference) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if number := STORAGE_NUMBERS.get(payload.kind):
        written["storageType"] = PayloadStorageType.Name(number)
    if payload.uri:
        written["uri"] = payload.uri
    if payload.sha256:
        written["contentHash"] = _base64(bytes.fromhex(payload.sha256))
    if payload.size:
        written["originalSize"] = str(payload.size)
    if payload.stored_at is not None:
        written["storedAt"] = _stamp(payload.stored_at)
    return written


def _stamp(moment: datetime) -> str:
    """Return *moment* as JSON has a Timestamp: UTC, with as few digits as say it, by threes."""
    text = moment.astimezone(UTC).isoformat()
    fraction = text[_SECONDS:-_OFFSET].removesuffix("000")
    return f"{text[:_SECONDS]}{fraction}Z"


def _uuid(text: str) -> UUID | None:
    if len(text) < _SHORTEST_UUID:
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
