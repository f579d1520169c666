"""The canonical JSON of letters of our own, written and read without protobuf.

This is the form that letters have in queues, spool and ledger unless the settings ask for another.
It is not a third form: any reader of proto3 JSON reads it, and a test compares it with protobuf's.
What is not exactly as it is written here is left to `json_form`, which reads it with protobuf.

Protobuf's JSON costs 0.6 to 1.1 ms more for each letter that is written and read once (ADR 0025).
Microseconds of CPU for a letter of 3 kB, and of 12 kB (329 webhooks of GitHub), with protobuf 7.36
(upb):

| | here | protobuf's JSON | protobuf's bytes |
|---|---|---|---|
| write | 36, 149 | 174, 345 | 59, 168 |
| read | 51, 118 | 537, 1033 | 158, 372 |
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import orjson

from angzarr.dead_letters.bounds import check_texts
from angzarr.dead_letters.letter import MAX_MESSAGE, DeadLetter, Mismatch, cut_message
from angzarr.dead_letters.metadata import derived, is_restated, read_facts, write_metadata
from angzarr.dead_letters.payload_json import (
    base64_json,
    reference_json,
    retrieval_json,
    stamp_json,
)
from angzarr.dead_letters.task_message import (
    EVENT_TEXTS,
    MAX_UINT32,
    Body,
    data_apart,
    first_arg,
    in_int32,
    in_uint64,
    join_body,
    split_body,
)
from angzarr.dead_letters.text import from_json_text, to_json_text, valid_text
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message, Priority
from angzarr.runtime.json_bounds import Bounds
from angzarr.wire.book_pb2 import MergeStrategy

_SHORTEST_UUID: Final = 32
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
    """*letter*, which has no envelope, as a JSON object; its texts may be no valid UTF-8."""
    task_message = _task_message(letter.message, letter.event)
    if letter.payload is not None:
        task_message |= reference_json(letter.payload)
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
    """The part of a letter that it does not restate each time it is written."""
    event = letter.event
    cover = _cover(letter.domain, event)
    page: dict[str, Any] = {"event": task_message}
    if event is not None:
        if event.sequence is not None and 0 <= event.sequence < MAX_UINT32:
            page["header"] = {"sequence": event.sequence}
        if event.occurred_at is not None:
            page["createdAt"] = stamp_json(event.occurred_at)
    return {
        "cover": cover,
        "occurredAt": stamp_json(letter.sent_to_dlq_at),
        "rejectedEvents": {"cover": cover, "pages": [page]},
        **_details(letter),
    }


def event_facts(event: Event, data: str | None) -> dict[str, Any]:
    """*event* as EventFacts; *data* is its JSON where the task's args do not hold it."""
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
        facts["occurredAt"] = stamp_json(event.occurred_at)
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
        cover["root"] = {"value": base64_json(root.bytes)}
    return cover


def _details(letter: DeadLetter) -> dict[str, Any]:
    """The details of the failure, of one kind."""
    if letter.mismatch is not None:
        return {"sequenceMismatch": _mismatch(letter.mismatch)}
    if letter.payload is not None and letter.lacks_payload:
        return {"payloadRetrievalFailed": retrieval_json(letter.payload, letter.error_message)}
    details: dict[str, Any] = {}
    if letter.error_message:
        details["error"] = cut_message(letter.error_message)
    if letter.attempts > 0:
        details["retryCount"] = min(letter.attempts, MAX_UINT32 - 1)
    if letter.category == "transient":
        details["isTransient"] = True
    return {"eventProcessingFailed": details}


def _mismatch(mismatch: Mismatch) -> dict[str, Any]:
    """The details; as canonical JSON, without what is 0."""
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
        written["rawBody"] = base64_json(message.body)
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


def _uuid(text: str) -> UUID | None:
    if len(text) < _SHORTEST_UUID:
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


#: Fields of TaskMessage that hold text.
_TEXTS: Final = frozenset(
    {"@type", "task", "args", "kwargs", "embed", "contentType", "contentEncoding", "headers",
     "queue", "exchange", "routingKey", "properties"}
)  # fmt: skip
#: Those that are JSON.
_JSON: Final = ("args", "kwargs", "embed", "headers", "properties")
_NO_TEXTS: Final = frozenset({"priority", "event"})
_TASK_MESSAGE: Final = _TEXTS | _NO_TEXTS
_STR: Final = frozenset({str})
_INT: Final = frozenset({int})
#: What of EventFacts an event holds letter by letter.
_VERBATIM: Final = frozenset({"id", "type", "priority", *EVENT_TEXTS.values()})
#: An enum looks its members up some times slower.
_PRIORITIES: Final[Mapping[str, Priority]] = {priority.value: priority for priority in Priority}


def read_own(raw: bytes, bounds: Bounds) -> DeadLetter | None:
    """The letter in *raw*, or None where `json_form` must read it; raises DecodeError."""
    try:
        return _read(raw, bounds)
    except DecodeError:  # it holds too much: the careful way would read as much of it
        raise
    except Exception:  # noqa: BLE001  hostile or foreign: the careful way says what is wrong
        return None


def _read(raw: bytes, bounds: Bounds) -> DeadLetter | None:
    data = orjson.loads(raw)
    metadata = data.pop("metadata")
    pop = data.pop
    told = (pop("rejectionReason", ""), pop("sourceComponent", ""), pop("sourceComponentType", ""))
    task, domain = data["rejectedEvents"]["pages"][0]["event"], data["cover"].get("domain", "")
    if not (_is_task_message(task) and _are_texts((domain, *told, *metadata.values()))):
        return None
    check_texts(_json_texts(task), bounds)
    body = Body(task["args"], task["kwargs"], task["embed"])
    first = first_arg(body)
    message = _message(task, body)
    event = _event(task["event"], first) if "event" in task else None
    facts, rest = read_facts(metadata)
    ours = derived(facts["id"], message, event)
    letter = DeadLetter(
        domain=domain,
        explanation=told[0],
        message=message,
        event=event,
        component=told[1],
        component_type=told[2],
        mismatch=_read_mismatch(data.get("sequenceMismatch")),
        metadata={key: value for key, value in rest.items() if ours.get(key) != value},
        **facts,
    )
    if not _says_no_more(data, task, letter, first):
        return None
    if len(letter.explanation) <= MAX_MESSAGE and is_restated(metadata, ours):
        object.__setattr__(letter, "canonical", raw)  # nothing else sees it yet
    return letter


def _says_no_more(
    data: dict[str, Any], task: dict[str, Any], letter: DeadLetter, first: Any
) -> bool:
    """True if *letter* holds all that *data* says, so that nothing is lost when it is sent.

    Of headers and properties it holds the values; their text may be spaced in another way.
    """
    name, told = letter.message.task, task.get("task", "")
    if told != name and told != valid_text(name):
        return False
    if payload_of(letter, task) != data:
        return False
    if letter.event is None:
        return True
    facts = task["event"]
    if facts.keys() <= _VERBATIM:
        return "" not in (facts.get("id"), facts.get("type"))  # nobody writes an empty one
    apart = facts.get("data")
    if apart is not None and apart != data_apart(letter.event, first):
        return False
    return bool(event_facts(letter.event, apart) == facts)


def _json_texts(task: dict[str, Any]) -> list[str]:
    """The texts of *task* that are JSON themselves."""
    texts = [task[key] for key in _JSON if key in task]
    apart = task["event"].get("data") if "event" in task else None
    return [*texts, apart] if type(apart) is str else texts


def _is_task_message(task: dict[str, Any]) -> bool:
    """True if *task* is a TaskMessage of a readable body, all its texts being texts."""
    others = ("priority" in task) + ("event" in task)
    if task["@type"] != TASK_MESSAGE_URL or not task.keys() <= _TASK_MESSAGE:
        return False
    if list(map(type, task.values())).count(str) != len(task) - others:
        return False
    priority = task.get("priority", 0)
    return type(priority) is int and in_int32(priority) and type(task.get("event", {})) is dict


def _message(task: dict[str, Any], body: Body) -> Message:
    headers = from_json_text(task["headers"])
    properties = from_json_text(task["properties"]) if "properties" in task else {}
    if not (type(headers) is dict and type(properties) is dict and task.get("properties") != "{}"):
        raise TypeError
    return Message(
        body=join_body(body),
        content_type=task.get("contentType", ""),
        content_encoding=task.get("contentEncoding", ""),
        headers=headers,
        queue=task.get("queue", ""),
        exchange=task.get("exchange", ""),
        routing_key=task.get("routingKey", ""),
        priority=task.get("priority"),
        properties=properties,
    )


def _event(facts: dict[str, Any], first: Any) -> Event:
    if list(map(type, facts.values())).count(str) != len(facts) - ("configPins" in facts):
        raise TypeError
    return Event(
        id=facts.get("id", ""),
        type=facts.get("type", ""),
        data=from_json_text(facts["data"]) if "data" in facts else first,
        sequence=int(facts["sequence"]) if "sequence" in facts else None,
        depth=int(facts.get("depth", 0)),
        priority=_PRIORITIES[facts["priority"]],
        config_pins=facts.get("configPins", {}),
        occurred_at=_read_moment(facts["occurredAt"]) if "occurredAt" in facts else None,
        **{name: facts[key] for name, key in EVENT_TEXTS.items() if key in facts},
    )


def _read_mismatch(told: dict[str, Any] | None) -> Mismatch | None:
    if told is None:
        return None
    strategy = told.get("mergeStrategy", 0)
    numbers = (
        told.get("expectedSequence", 0),
        told.get("actualSequence", 0),
        MergeStrategy.Value(strategy) if isinstance(strategy, str) else strategy,
    )
    if not _INT.issuperset(map(type, numbers)):  # True would pass for 1
        raise TypeError
    return Mismatch(*numbers)


def _read_moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _are_texts(values: Iterable[object]) -> bool:
    return _STR.issuperset(map(type, values))
