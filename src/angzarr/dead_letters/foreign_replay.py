"""ForeignReplay: the Celery message by which a letter of others is handled here. Pure.

Other languages' letters name no task: the settings say which takes them. Its one argument is a
JSON object, described in docs/reference/dead-letters.md.

RecordReplay: the Celery message by which a record that is not a letter is handled here. Pure.

A Celery message that RabbitMQ gave up is sent again as it was. Any other record goes to the task
that the settings name for its domain and type, with all that carried it.

Foreign pages: what a letter of others holds, as JSON values that a handler can take. Pure.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import DecodeError as ProtobufDecodeError

from angzarr.dead_letters.foreign import root_text, unknown_field
from angzarr.dead_letters.json_form import without_unknown_types
from angzarr.dead_letters.letter import UNDATED, DeadLetter, Reason, Refusal
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.recognition import json_object, recognise
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.task_message import time_in
from angzarr.events.event import Event, Message
from angzarr.events.headers import BROKER_COUNTERS, QUEUE, time_of
from angzarr.events.publication import celery_message
from angzarr.runtime.failures import is_machine_fault
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

#: By the field of the letter: what it is called in JSON, and the field of its pages.
_BOOKS: Final = {
    "rejected_events": ("events", ("rejectedEvents", "rejected_events"), "event"),
    "rejected_command": ("command", ("rejectedCommand", "rejected_command"), "command"),
}
_NOTHING: Final = "the letter holds no event and no command"


class ForeignBook(NamedTuple):
    """The rejected events or command, with what the cover says."""

    #: ``events`` or ``command``.
    kind: str
    root: str | None
    correlation_id: str | None
    edition: str | None
    #: Each with ``sequence``, ``created_at``, ``type``, and ``data``, ``value`` or ``external``.
    pages: Sequence[dict[str, Any]]


def read_book(envelope: bytes) -> ForeignBook | Refusal:
    """The book in the *envelope* of a letter of others, or why there is none.

    Raises what a machine lacks, such as memory: protobuf says so by a DecodeError.
    """
    try:
        return _from_json(envelope) if envelope.startswith(b"{") else _from_binary(envelope)
    except (ProtobufDecodeError, json_format.ParseError, ValueError, RecursionError) as error:
        if is_machine_fault(error):
            raise
        return Refusal(f"the letter's payload cannot be read ({type(error).__name__})")


def _from_binary(envelope: bytes) -> ForeignBook | Refusal:
    letter = AngzarrDeadLetter.FromString(envelope)
    contents = [_foreign_pages_content(page, field) for page, field in _pages_of(letter)]
    return _book(letter, contents)


def _from_json(envelope: bytes) -> ForeignBook | Refusal:
    """Read JSON whose payload types are not known here: their fields are the data."""
    data = json.loads(envelope)
    letter = json_format.ParseDict(
        without_unknown_types(data), AngzarrDeadLetter(), ignore_unknown_fields=True
    )
    which = letter.WhichOneof("payload")
    if which is None:
        return Refusal(_NOTHING)
    _, spellings, field = _BOOKS[which]
    given = next(data[name] for name in spellings if name in data).get("pages", [])
    contents = [
        _json_content(page[field])
        if isinstance(page.get(field), dict)
        else _foreign_pages_content(read, field)
        for page, (read, _) in zip(given, _pages_of(letter), strict=True)
    ]
    return _book(letter, contents)


def _book(letter: AngzarrDeadLetter, contents: Sequence[dict[str, Any]]) -> ForeignBook | Refusal:
    which = letter.WhichOneof("payload")
    if which is None or not contents:
        return Refusal(_NOTHING)
    cover = letter.cover if letter.HasField("cover") else getattr(letter, which).cover
    pages = [
        {"sequence": _sequence(page), "created_at": _created_at(page), **content}
        for (page, _), content in zip(_pages_of(letter), contents, strict=True)
    ]
    return ForeignBook(
        kind=_BOOKS[which][0],
        root=root_text(cover.root.value) or None,
        correlation_id=cover.correlation_id or None,
        edition=cover.edition.name or None,
        pages=pages,
    )


def _pages_of(letter: AngzarrDeadLetter) -> list[tuple[Any, str]]:
    """The pages of *letter*, each with the name of the field that its payload is in."""
    which = letter.WhichOneof("payload")
    if which is None:
        return []
    return [(page, _BOOKS[which][2]) for page in getattr(letter, which).pages]


def _foreign_pages_content(page: Any, field: str) -> dict[str, Any]:
    if page.WhichOneof("payload") == "external":
        reference = json_format.MessageToDict(page.external, preserving_proto_field_name=True)
        return {"type": "", "external": reference}
    payload = getattr(page, field)
    value = base64.b64encode(payload.value).decode()
    return {"type": payload.type_url.rpartition("/")[2], "value": value}


def _json_content(payload: dict[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in payload.items() if name != "@type"}
    return {"type": str(payload.get("@type", "")).rpartition("/")[2], "data": data}


def _sequence(page: Any) -> int | None:
    return page.header.sequence if page.header.WhichOneof("sequence_type") == "sequence" else None


def _created_at(page: Any) -> str | None:
    """The time when the page was made; pages of commands do not say."""
    if "created_at" not in page.DESCRIPTOR.fields_by_name or not page.HasField("created_at"):
        return None
    moment = time_in(page.created_at)
    return moment.isoformat() if moment else None


#: Stands for every type that is not named.
ANY_TYPE: Final = "*"

_TASK_IDS: Final = uuid.UUID("5b0c2f0e-3f5e-5d6a-9d51-3a3f0c1de7b4")


@dataclass(frozen=True, slots=True)
class RecordRoute:
    """The task that takes a foreign letter, and the queue it is sent to."""

    task: str
    queue: str


#: By domain, then by full type name or `ANY_TYPE`.
Routes: TypeAlias = Mapping[str, Mapping[str, RecordRoute]]


def routed(letter: DeadLetter, routes: Routes) -> DeadLetter | Refusal:
    """*letter*, which others wrote, with the message for its route, or why not.

    The same letter and route give the same message.
    """
    book = read_book(letter.envelope)
    if isinstance(book, Refusal):
        return book
    if unknown := unknown_field(letter.envelope):
        return Refusal(
            f"the letter has a field that this release does not know, {unknown[:100]!r}, which no"
            " task would be given: use a release that knows it"
        )
    route = route_of(letter.domain, book, routes)
    if isinstance(route, Refusal):
        return route
    event = _event(letter, book)
    return replace(letter, message=message_for(letter.id, route, event), event=event, envelope=b"")


def route_of(domain: str, book: ForeignBook, routes: Routes) -> RecordRoute | Refusal:
    """The one route of all pages."""
    known, types = routes.get(domain, {}), sorted({page["type"] for page in book.pages})
    found = {name: known.get(name) or known.get(ANY_TYPE) for name in types}
    missing = [name for name, route in found.items() if route is None]
    if missing:
        name = missing[0] or ANY_TYPE
        example = json.dumps({domain: {name: {"task": "…", "queue": "…"}}}, ensure_ascii=False)
        return Refusal(
            f"no task takes {name!r} of the domain {domain!r} from others:"
            f" name one under dlq.foreign_routes, e.g. {example}"
        )
    different = {route for route in found.values() if route is not None}
    if len(different) != 1:
        return Refusal(f"its pages have different routes in dlq.foreign_routes: {', '.join(types)}")
    return different.pop()


def _event(letter: DeadLetter, book: ForeignBook) -> Event:
    first = book.pages[0]
    alone = len(book.pages) == 1
    return Event(
        id=letter.id,
        type=first["type"] or book.kind,
        data={
            "letter_id": letter.id,
            "domain": letter.domain,
            "root": book.root,
            "correlation_id": book.correlation_id,
            "edition": book.edition,
            "kind": book.kind,
            "pages": list(book.pages),
        },
        domain=letter.domain or None,
        root=book.root,
        edition=book.edition,
        sequence=first["sequence"] if alone else None,
        correlation_id=book.correlation_id,
        occurred_at=time_of(first["created_at"]) if alone else None,
    )


def message_for(letter_id: str, route: RecordRoute, event: Event) -> Message:
    """The message that Celery would send for the task, protocol 2."""
    task_id = str(uuid.uuid5(_TASK_IDS, f"{letter_id}\x00{route.task}\x00{route.queue}"))
    return celery_message(route.task, task_id, event, route.queue, origin="angzarr-dlq")


def letter_for(given: RawLetter, routes: Routes) -> DeadLetter | Refusal:
    """*given*, which is not a letter, as one with the message for its task, or why not.

    The same bytes, record and routes give the same message.
    """
    if given.record is None:
        return Refusal(
            "the letter could not be read, so there is no message to send:"
            " publish the event again if it is yours"
        )
    told = recognise(given.raw, given.content_type, given.record)
    if told.task:
        return _letter(given, _celery_message(given, given.record), None)
    page = {"sequence": None, "created_at": None, "type": told.event_type, **_content(given.raw)}
    book = ForeignBook("record", None, told.correlation_id or None, None, [page])
    route = route_of(given.domain, book, routes)
    if isinstance(route, Refusal):
        return route
    event = _record_replay_event(given, given.record, book)
    return _letter(given, message_for(given.id, route, event), event)


def _letter(given: RawLetter, message: Message, event: Event | None) -> DeadLetter:
    return DeadLetter(
        id=given.id,
        domain=given.domain,
        handler=message.task,
        reason=Reason.UNDELIVERABLE,
        explanation="",
        message=message,
        event=event,
        sent_to_dlq_at=UNDATED,
    )


def _celery_message(given: RawLetter, record: ForeignRecord) -> Message:
    """The message as it was before it was dead-lettered, for the queue it was in then."""
    headers = dict(reversed(record.headers))
    deaths = headers.get("x-death")
    death = deaths[-1] if isinstance(deaths, list) and deaths else {}
    lay_in = death.get("queue") if isinstance(death, dict) else None
    queue = headers.get(QUEUE) or lay_in or ""
    properties = dict(record.properties)
    priority = properties.get("priority")
    return Message(
        body=given.raw,
        content_type=given.content_type,
        content_encoding=str(properties.pop("content_encoding", None) or "utf-8"),
        headers={name: value for name, value in headers.items() if name not in BROKER_COUNTERS},
        queue=str(queue),
        exchange="",
        routing_key=str(queue),
        priority=priority if type(priority) is int else None,
        properties={
            name: properties[name]
            for name in ("correlation_id", "reply_to")
            if isinstance(properties.get(name), str)
        },
    )


def _record_replay_event(given: RawLetter, record: ForeignRecord, book: ForeignBook) -> Event:
    return Event(
        id=given.id,
        type=book.pages[0]["type"] or book.kind,
        data={
            "letter_id": given.id,
            "domain": given.domain,
            "root": None,
            "correlation_id": book.correlation_id,
            "edition": None,
            "kind": book.kind,
            "pages": list(book.pages),
            "record": {**record.as_json(), "content_type": given.content_type},
        },
        domain=given.domain or None,
        correlation_id=book.correlation_id,
    )


def _content(raw: bytes) -> dict[str, Any]:
    """The bytes as data where they are a JSON object, else as base64."""
    found = json_object(raw)
    return {"value": base64.b64encode(raw).decode()} if found is None else {"data": found}
