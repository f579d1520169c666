"""RecordReplay: the Celery message by which what is no letter is handled here. Pure.

A Celery message that RabbitMQ gave up is sent again as it was. Any other record goes to the task
that the settings name for its domain and type, with all that carried it.
"""

from __future__ import annotations

import base64
from typing import Any

from angzarr.dead_letters.foreign_pages import Book
from angzarr.dead_letters.foreign_replay import Routes, message_for, route_of
from angzarr.dead_letters.letter import UNDATED, DeadLetter, Reason
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.recognition import json_object, recognise
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.refusal import Refusal
from angzarr.events.event import Event
from angzarr.events.headers import BROKER_COUNTERS, QUEUE
from angzarr.events.message import Message


def letter_for(given: RawLetter, routes: Routes) -> DeadLetter | Refusal:
    """Return *given*, which is no letter, as one with the message for its task, or why not.

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
    book = Book("record", None, told.correlation_id or None, None, [page])
    route = route_of(given.domain, book, routes)
    if isinstance(route, Refusal):
        return route
    event = _event(given, given.record, book)
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
    """Return the message as it was before it was dead-lettered, for the queue it was in then."""
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


def _event(given: RawLetter, record: ForeignRecord, book: Book) -> Event:
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
    """Return the bytes as data where they are a JSON object, else as base64."""
    found = json_object(raw)
    return {"value": base64.b64encode(raw).decode()} if found is None else {"data": found}
