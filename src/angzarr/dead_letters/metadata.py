"""The metadata of a letter: facts without a field of their own, under fixed keys (spec L3).

Keys once published in a release never change. Listed in docs/reference/dead-letters.md.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.letter import (
    MAX_MESSAGE,
    MAX_STACK,
    DeadLetter,
    Reason,
    cut_message,
    cut_stack,
)
from angzarr.events.event import Event, Message

ID: Final = "id"
LETTER_ID: Final = "letter_id"
ORIGINAL_QUEUE: Final = "original_queue"
TENANT_ID: Final = "tenant_id"
ENTITY_ID: Final = "entity_id"
TRACE_ID: Final = "trace_id"
EVENT_ID: Final = "event_id"
EVENT_TYPE: Final = "event_type"
#: How many values were removed of what a replay would send.
REDACTED: Final = "redacted"
#: What the worker called the group, where the analysis worker's rules call it otherwise.
WORKER_FINGERPRINT: Final = "worker_fingerprint"
#: The finished steps of the failed run, each a JSON list of names in the order of undoing: what
#: was undone, what could not be and is still logged, and what was not tried.
STEPS_UNDONE: Final = "steps_undone"
STEPS_NOT_UNDONE: Final = "steps_not_undone"
STEPS_LEFT: Final = "steps_left"
#: Key id and HMAC of what a replay would send, and of that with all that a decision rests on.
SIGNATURE: Final = "signature"
FULL_SIGNATURE: Final = "signature_2"
SIGNATURES: Final = frozenset({SIGNATURE, FULL_SIGNATURE})

_LONGEST_COUNT: Final = 9
#: Nearly all counts, by their texts.
_COUNTS: Final = {str(count): count for count in range(20)}
_TRACEPARENT_PARTS: Final = 4


class _Fact(NamedTuple):
    """One field of DeadLetter under its key; `default` is what a letter without the key has."""

    key: str
    default: Any
    write: Callable[[Any], str]
    read: Callable[[str], Any]
    #: Written even where it says nothing, so that readers need not know the default.
    always: bool = False


class FactsRead(NamedTuple):
    """The fields of DeadLetter that metadata held, and what else it held."""

    fields: dict[str, Any]
    rest: dict[str, str]


def write_metadata(letter: DeadLetter) -> dict[str, str]:
    """All metadata of *letter*: its facts, copies of its event's facts, and others' keys."""
    written = derived(letter.id, letter.message, letter.event)
    written.update(letter.metadata)
    written[LETTER_ID] = letter.id
    for (key, default, write, always), value in zip(_WRITTEN, _values(letter), strict=True):
        if value != default or (always and key not in letter.metadata):
            written[key] = write(value)
    return written


def read_facts(metadata: Mapping[str, str]) -> FactsRead:
    """Split *metadata* into fields of DeadLetter and the rest; a malformed fact stays a rest."""
    fields: dict[str, Any] = {}
    rest: dict[str, str] = {}
    for key, text in metadata.items():
        if name := _TEXTS.get(key):
            fields[name] = text
        elif read := _READ.get(key):
            try:
                value = read(text)
                is_utc = read is not _moment or value.tzinfo is UTC  # as it is written here
                fields[key] = value if is_utc else _in_utc(value)
            except (ValueError, KeyError, OverflowError):
                rest[key] = text
        else:
            rest[key] = text
    return FactsRead(fields, rest)


def is_restated(metadata: Mapping[str, str], ours: Mapping[str, str]) -> bool:
    """True if *metadata* have all that `write_metadata` would say, and nothing that it would cut.

    *ours* are what `derived` says of the letter that was read from them.
    """
    return (
        ours.items() <= metadata.items()
        and metadata.keys() >= _ALWAYS
        and len(metadata.get("error_message", "")) <= MAX_MESSAGE
        and len(metadata.get("error_stack", "")) <= MAX_STACK
    )


def derived(letter_id: str, message: Message, event: Event | None) -> dict[str, str]:
    """The keys that repeat what message and event say, for readers of metadata only."""
    said = {ID: f"dlq_{message.id or (event.id if event else '') or letter_id}"}
    if message.queue:
        said[ORIGINAL_QUEUE] = message.queue
    if event:
        if event.id:
            said[EVENT_ID] = event.id
        if event.type:
            said[EVENT_TYPE] = event.type
        if event.tenant_id:
            said[TENANT_ID] = event.tenant_id
        if event.root:
            said[ENTITY_ID] = event.root
        if event.traceparent and (trace := trace_id(event.traceparent)):
            said[TRACE_ID] = trace
    return said


def trace_id(traceparent: str) -> str:
    """The trace id of a W3C *traceparent*, or an empty string."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= _TRACEPARENT_PARTS else ""


def _count(text: str) -> int:
    if (known := _COUNTS.get(text)) is not None:
        return known
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT):
        msg = "not a count"
        raise ValueError(msg)
    return int(text)


_moment: Final = datetime.fromisoformat


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


#: An enum looks its members up some times slower.
_REASONS: Final[Mapping[str, Reason]] = {reason.value: reason for reason in Reason}

_FACTS: Final = (
    _Fact("handler", "", str, str, always=True),
    _Fact("reason", Reason.REFUSED, str, _REASONS.__getitem__, always=True),
    _Fact("category", "unknown", str, str, always=True),
    _Fact("error_type", "", str, str),
    _Fact("error_code", "UNKNOWN", str, str, always=True),
    _Fact("error_message", "", cut_message, str),
    _Fact("error_stack", "", cut_stack, str),
    _Fact("attempts", 0, str, _count, always=True),
    _Fact("replay", 0, str, _count, always=True),
    _Fact("first_attempt_at", None, datetime.isoformat, _moment),
    _Fact("last_attempt_at", None, datetime.isoformat, _moment),
    _Fact("sent_to_dlq_at", None, datetime.isoformat, _moment),
    _Fact("fingerprint", "", str, str),
    _Fact("worker", "", str, str),
    _Fact("version", "", str, str),
)
#: Plain tuples, which are unpacked faster; beside them, the values of those fields of a letter.
_WRITTEN: Final = tuple((one.key, one.default, one.write, one.always) for one in _FACTS)
_ALWAYS: Final = frozenset({LETTER_ID, *(one.key for one in _FACTS if one.always)})
_values: Final = operator.attrgetter(*(fact.key for fact in _FACTS))
#: The facts that are texts, by the names of their fields in DeadLetter, and how others are read.
_TEXTS: Final = {LETTER_ID: "id"} | {fact.key: fact.key for fact in _FACTS if fact.read is str}
_READ: Final = {fact.key: fact.read for fact in _FACTS if fact.read is not str}
