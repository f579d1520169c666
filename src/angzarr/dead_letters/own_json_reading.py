"""Reads the JSON of letters of our own; what is not exactly as we write it is not read here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from angzarr.dead_letters.bounds import check_texts
from angzarr.dead_letters.letter import DeadLetter, Mismatch
from angzarr.dead_letters.metadata import derived, read_facts
from angzarr.dead_letters.own_json import TASK_MESSAGE_URL, event_facts, payload_of
from angzarr.dead_letters.task_message import (
    EVENT_TEXTS,
    Body,
    data_apart,
    first_arg,
    in_int32,
    join_body,
)
from angzarr.dead_letters.text import from_json_text, valid_text
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message, Priority
from angzarr.runtime.json_bounds import Bounds
from angzarr.wire.book_pb2 import MergeStrategy

#: What a letter tells of itself anew each time it is written, besides its metadata.
_TOLD: Final = ("rejectionReason", "sourceComponent", "sourceComponentType")
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
#: An enum looks its members up some times slower.
_PRIORITIES: Final[Mapping[str, Priority]] = {priority.value: priority for priority in Priority}


def read_own(raw: bytes, bounds: Bounds) -> DeadLetter | None:
    """Return the letter in *raw*, or None where `json_form` must read it; raises DecodeError."""
    try:
        return _read(orjson.loads(raw), bounds)
    except DecodeError:  # it holds too much: the careful way would read as much of it
        raise
    except Exception:  # noqa: BLE001  hostile or foreign: the careful way says what is wrong
        return None


def _read(data: dict[str, Any], bounds: Bounds) -> DeadLetter | None:
    metadata = data.pop("metadata")
    told = [data.pop(key, "") for key in _TOLD]
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
    return letter if _says_no_more(data, task, letter, first) else None


def _says_no_more(
    data: dict[str, Any], task: dict[str, Any], letter: DeadLetter, first: Any
) -> bool:
    """Tell whether *letter* holds all that *data* says, so that nothing is lost when it is sent.

    Of headers and properties it holds the values; their text may be spaced in another way.
    """
    if task.get("task", "") != valid_text(letter.message.task):
        return False
    if payload_of(letter, task) != data:
        return False
    if letter.event is None:
        return True
    apart = task["event"].get("data")
    if apart is not None and apart != data_apart(letter.event, first):
        return False
    return bool(event_facts(letter.event, apart) == task["event"])


def _json_texts(task: dict[str, Any]) -> list[str]:
    """Return the texts of *task* that are JSON themselves."""
    texts = [task.get(key, "") for key in _JSON]
    apart = task["event"].get("data") if "event" in task else None
    return [*texts, apart] if type(apart) is str else texts


def _is_task_message(task: dict[str, Any]) -> bool:
    """Tell whether *task* is a TaskMessage of a readable body, all its texts being texts."""
    priority = task.get("priority", 0)
    return (
        task["@type"] == TASK_MESSAGE_URL
        and task.keys() <= _TASK_MESSAGE
        and _are_texts([text for key, text in task.items() if key not in _NO_TEXTS])
        and type(priority) is int
        and in_int32(priority)
    )


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
    if not _are_texts([text for key, text in facts.items() if key != "configPins"]):
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
