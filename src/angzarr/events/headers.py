"""Headers: the names of all that this package writes or reads, and the way to and from an Event.

Once released, a name never changes. They are listed in docs/reference/headers.md.

Every number from a header, a property or a row is read here. Queues are hostile: ``int()`` of a
Decimal takes minutes, `math.isfinite` raises on a large int, and ``True`` passes for 1. Absent,
malformed and too large are three answers. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from angzarr.errors import DecodeError
from angzarr.events.event import Event, Priority
from angzarr.runtime.json_bounds import Bounds, check_json
from angzarr.runtime.text import printable

#: Attempts, hops, replays and depths: a store holds 32 bits, and ours are counted on from them.
MAX_NUMBER: Final = 2**30
#: Sequences: what the wire's uint32 holds. `publish` refuses more.
MAX_SEQUENCE: Final = 2**32 - 1
#: Seconds of a time limit: a hundred years.
MAX_SECONDS: Final = 100 * 366 * 86400

#: Digits of a number that is written as text.
_MOST_DIGITS: Final = 10


class NoNumber(Enum):
    """The reason why there is no number."""

    ABSENT = "absent"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"


def read_number(value: object, most: int = MAX_NUMBER) -> int | NoNumber:
    """*value* as an int from 0 to *most*, or why it is none.

    Taken are an int, a whole float, and text of at most ten digits. A negative one is malformed.
    """
    if type(value) is int:  # a bool is none
        return _bounded(value, most)
    if value is None:
        return NoNumber.ABSENT
    if type(value) is float:
        return _bounded(int(value), most) if _is_whole(value) else NoNumber.MALFORMED
    if type(value) is str and value.isascii() and value.isdigit():
        return _bounded(int(value), most) if len(value) <= _MOST_DIGITS else NoNumber.TOO_LARGE
    return NoNumber.MALFORMED


def read_seconds(value: object, most: float = MAX_SECONDS) -> float | NoNumber:
    """*value* as seconds from 0 to *most*, or why it is none; text is none."""
    if value is None:
        return NoNumber.ABSENT
    if type(value) is not int and type(value) is not float:
        return NoNumber.MALFORMED
    if not value >= 0:  # nor is NaN
        return NoNumber.MALFORMED
    return value if value <= most else NoNumber.TOO_LARGE


def number_or(value: object, default: int, most: int = MAX_NUMBER) -> int:
    """*value* as `read_number` does, and *default* where it is none."""
    if value is None:  # most headers are absent
        return default
    number = read_number(value, most)
    return default if isinstance(number, NoNumber) else number


def _bounded(number: int, most: int) -> int | NoNumber:
    if number < 0:
        return NoNumber.MALFORMED
    return number if number <= most else NoNumber.TOO_LARGE


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value.is_integer()


EVENT_ID: Final = "angzarr-event-id"
EVENT_TYPE: Final = "angzarr-event-type"
DOMAIN: Final = "angzarr-domain"
ROOT: Final = "angzarr-root"
EDITION: Final = "angzarr-edition"
SEQUENCE: Final = "angzarr-sequence"
CORRELATION_ID: Final = "angzarr-correlation-id"
CAUSATION_ID: Final = "angzarr-causation-id"
TENANT_ID: Final = "angzarr-tenant-id"
PRIORITY: Final = "angzarr-priority"
CONFIG_PINS: Final = "angzarr-config-pins"
OCCURRED_AT: Final = "angzarr-occurred-at"
TRACEPARENT: Final = "traceparent"  # W3C Trace Context

#: How many events and commands came before it in its chain; absent means 0.
DEPTH: Final = "angzarr-depth"
#: The saga that sent a command, and the event that made it do so (spec C4).
SAGA: Final = "angzarr-saga"
SOURCE_DOMAIN: Final = "angzarr-source-domain"
SOURCE_ROOT: Final = "angzarr-source-root"
SOURCE_EDITION: Final = "angzarr-source-edition"
SOURCE_SEQUENCE: Final = "angzarr-source-sequence"

#: Handler runs so far plus one; absent means 1.
ATTEMPT: Final = "angzarr-attempt"
#: Copies published since the first message of this replay; absent means 0.
HOP: Final = "angzarr-hop"
#: When the first attempt of this replay began, RFC 3339.
FIRST_ATTEMPT_AT: Final = "angzarr-first-attempt-at"
#: Since when it has been waiting for a breaker, a budget or a limit, RFC 3339; let in, it has none.
HELD_SINCE: Final = "angzarr-held-since"
#: Whether the run before gave the message back to its queue (Celery's ``Reject(requeue=True)``).
REQUEUED: Final = "angzarr-requeued"
#: Milliseconds that RabbitMQ's delay of whole seconds leaves; who gets the copy sleeps them.
REST: Final = "angzarr-rest"
#: The ``eta`` for which a message has waited: the schedule has said that it is due.
WAITED_FOR: Final = "angzarr-waited-for"
#: Where its body lies, if it was too large to be sent; `payloads.claim_check` writes and reads it.
PAYLOAD: Final = "angzarr-payload"
#: The queue the message was first sent to.
QUEUE: Final = "angzarr-queue"
#: The bytes of headers that cannot be read, in their place (RabbitMQ).
UNREAD: Final = "angzarr-unread-headers"

#: Set on a replay (spec A4).
REPLAYED: Final = "X-Retry-From-DLQ"
ORIGINAL_MESSAGE_ID: Final = "X-Original-Message-ID"
REPLAY: Final = "X-DLQ-Attempts"
#: The dead letter a replayed message comes from.
LETTER_ID: Final = "angzarr-letter-id"
#: Who had a dead letter sent again: a person, a job, or an analysis worker by a rule.
REPLAYED_BY: Final = "angzarr-replayed-by"
#: The dead letter whose effects a message undoes.
COMPENSATES: Final = "angzarr-compensates"
#: Why its lane is to go on without it: the event is not handled.
SKIP: Final = "angzarr-skip"

#: The edit that its data comes from: the entry and the replay that first carried it.
EDIT: Final = "angzarr-edit"

#: What one attempt, one copy or one broker adds; a copy drops or replaces them.
BROKER_COUNTERS: Final = (
    "x-delivery-count",
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
)

#: The most that the configuration pins of an event are read to.
_PINS: Final = Bounds(nodes=1000, depth=8)
#: Celery's own: how often `Task.replace` was called for the id that a task has.
_REPLACED_NESTING: Final = "replaced_task_nesting"

#: What no user may set and no task is shown: a child would inherit its parent's position.
#: `TRACEPARENT` is the W3C's.
OURS: Final = frozenset({REPLAYED, ORIGINAL_MESSAGE_ID, REPLAY})
#: How the names of all others of them begin, also of those that a newer release writes.
_PREFIX: Final = "angzarr-"

#: Those of nearly every event.
OF_EVENTS: Final = frozenset(
    {EVENT_ID, EVENT_TYPE, DOMAIN, ROOT, EDITION, SEQUENCE, CORRELATION_ID, CAUSATION_ID,
     TENANT_ID, PRIORITY, CONFIG_PINS, OCCURRED_AT, QUEUE}
)  # fmt: skip

_TEXT: Final = (
    ("domain", DOMAIN), ("root", ROOT), ("edition", EDITION), ("correlation_id", CORRELATION_ID),
    ("causation_id", CAUSATION_ID), ("tenant_id", TENANT_ID), ("traceparent", TRACEPARENT),
)  # fmt: skip


class OwnHeaders(dict[str, Any]):
    """Headers that this package's own code gives to Celery: only these may have `OURS` in them."""

    __slots__ = ()


def is_ours(name: object) -> bool:
    """True if a header of this name is set and read by this package alone."""
    return isinstance(name, str) and (name.startswith(_PREFIX) or name in OURS)


def without_ours(headers: Mapping[Any, Any]) -> dict[Any, Any]:
    """*headers* as a user may see and set them."""
    return {name: value for name, value in headers.items() if not is_ours(name)}


def to_headers(event: Event) -> dict[str, Any]:
    """The headers that carry all of *event* but its data; absent fields make none."""
    headers: dict[str, Any] = {EVENT_ID: event.id, EVENT_TYPE: event.type}
    headers.update(
        (header, value) for field, header in _TEXT if (value := getattr(event, field)) is not None
    )
    if event.sequence is not None:
        headers[SEQUENCE] = event.sequence
    if event.depth:
        headers[DEPTH] = event.depth
    if event.priority is not Priority.DEFAULT:
        headers[PRIORITY] = event.priority.value
    if event.config_pins:
        headers |= pin_headers(event.config_pins)
    if event.occurred_at is not None:
        headers[OCCURRED_AT] = event.occurred_at.isoformat()
    return headers


def pin_headers(pins: Mapping[str, str]) -> dict[str, str]:
    """The header that carries *pins*, version by id."""
    return {CONFIG_PINS: json.dumps(dict(pins), sort_keys=True)}


def pins_of(headers: Mapping[str, Any]) -> dict[str, str]:
    """The pins that *headers* carry; none where they are malformed."""
    return _pins(headers.get(CONFIG_PINS))


def are_pins_unreadable(headers: Mapping[str, Any]) -> bool:
    """True if *headers* carry pins that cannot be read; none at all may be right.

    For callers that go by them: read as absent, an event would see another version.
    """
    value = headers.get(CONFIG_PINS)
    return value is not None and _pins_in(value) is None


def event_id_of(headers: Mapping[str, Any]) -> str:
    """The id of a Celery message's event: its own, else the task's."""
    return _text(headers.get(EVENT_ID)) or _run_of(str(headers.get("id") or ""), headers)


def _run_of(task_id: str, headers: Mapping[str, Any]) -> str:
    """*task_id*, with the number of tasks that were replaced before this one took their id.

    A task of `Task.replace` has the id of the task that it replaces, and is not its duplicate.
    """
    nesting = headers.get(_REPLACED_NESTING)
    if not nesting:
        return task_id
    number = number_or(nesting, 0)
    return f"{task_id}~{number}" if number else task_id


def from_headers(headers: Mapping[str, Any], *, data: object, event_id: str, type: str) -> Event:
    """Read an Event; the task's id *event_id* and *type* stand in where the headers have none.

    A malformed optional header is ignored, never an error: the body decides whether the event
    can be handled, and a hostile publisher must not be able to stop a worker with a header.
    """
    get = headers.get
    said: dict[str, Any] = {
        field: value for field, header in _TEXT if isinstance(value := get(header), str) and value
    }
    for header, field, read in _READ:
        if header in headers:  # few are
            said[field] = read(headers[header])
    return Event(
        id=_text(get(EVENT_ID)) or _run_of(event_id, headers),
        type=_text(get(EVENT_TYPE)) or type,
        data=data,
        **said,
    )


#: Bits of a number that is shown by its digits.
_SHOWN_BITS: Final = 512
#: Characters of the reason of a skip.
LONGEST_REASON: Final = 500


def skip_of(headers: Mapping[str, Any]) -> str | None:
    """Why a message only moves its lane on, in one printable line; None: it does not."""
    reason = _text(headers.get(SKIP))
    return None if reason is None else skip_reason(reason)


def skip_reason(text: str) -> str:
    """*text* as the reason of a skip travels: one printable line, cut."""
    return printable(text[:LONGEST_REASON])


def replayed_by(headers: Mapping[str, Any]) -> str | None:
    """Who had a dead letter sent again, in one printable line; None: it does not say."""
    who = _text(headers.get(REPLAYED_BY))
    return None if who is None else printable(who[:LONGEST_REASON])


def check_sequence(headers: Mapping[str, Any]) -> None:
    """Raise DecodeError where the sequence in *headers* cannot be read; none at all may be right.

    For callers that go by it: read as absent, a stale command would be carried out.
    """
    value = headers.get(SEQUENCE)
    if value is not None and isinstance(read_number(value, MAX_SEQUENCE), NoNumber):
        raise DecodeError(sequence_problem(value))


def sequence_problem(value: object) -> str:
    """Say what is wrong with *value*, which is not a sequence."""
    return f"sequence must be a whole number from 0 to {MAX_SEQUENCE}; got {_shown(value)}"


def _shown(value: object) -> str:
    """*value* for people; the digits of a large number are quadratic work."""
    if type(value) is int and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.50}"


def time_of(value: object) -> datetime | None:
    """An RFC 3339 *value* as an aware UTC time, or None where absent or malformed."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def whole_number(value: object) -> int | None:
    """*value* as a sequence, or None where it is none, whatever the reason."""
    if value is None:
        return None
    number = read_number(value, MAX_SEQUENCE)
    return None if isinstance(number, NoNumber) else number


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _priority(value: object) -> Priority:
    if value is None:
        return Priority.DEFAULT
    try:
        return Priority(str(value))
    except ValueError:
        return Priority.DEFAULT


def _pins(value: object) -> dict[str, str]:
    return _pins_in(value) or {}


def _pins_in(value: object) -> dict[str, str] | None:
    """The pins that *value* says; None: it cannot be read."""
    if not isinstance(value, str):
        return None
    try:
        check_json(value, _PINS)
        pins = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return {str(k): str(v) for k, v in pins.items()} if isinstance(pins, dict) else None


def _depth(value: object) -> int:
    return number_or(value, 0)


#: The optional fields of an event that are more than text, and what reads them.
_READ: Final[tuple[tuple[str, str, Callable[[object], Any]], ...]] = (
    (SEQUENCE, "sequence", whole_number),
    (DEPTH, "depth", _depth),
    (PRIORITY, "priority", _priority),
    (CONFIG_PINS, "config_pins", _pins),
    (OCCURRED_AT, "occurred_at", time_of),
)
