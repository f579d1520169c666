"""ForeignReplay: the Celery message by which a letter of others is handled here. Pure.

Other languages' letters name no task: the settings say which takes them. Its one argument is a
JSON object, described in docs/reference/dead-letters.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from angzarr.dead_letters.foreign_fields import unknown_field
from angzarr.dead_letters.foreign_pages import Book, read_book
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.refusal import Refusal
from angzarr.events.celery_message import celery_message
from angzarr.events.event import Event
from angzarr.events.headers import time_of
from angzarr.events.message import Message

#: Stands for every type that is not named.
ANY_TYPE: Final = "*"

_TASK_IDS: Final = uuid.UUID("5b0c2f0e-3f5e-5d6a-9d51-3a3f0c1de7b4")


@dataclass(frozen=True, slots=True)
class Route:
    """The task that takes a foreign letter, and the queue it is sent to."""

    task: str
    queue: str


#: By domain, then by full type name or `ANY_TYPE`.
Routes: TypeAlias = Mapping[str, Mapping[str, Route]]


def routed(letter: DeadLetter, routes: Routes) -> DeadLetter | Refusal:
    """Return *letter*, which others wrote, with the message for its route, or why not.

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


def route_of(domain: str, book: Book, routes: Routes) -> Route | Refusal:
    """Return the one route of all pages."""
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


def _event(letter: DeadLetter, book: Book) -> Event:
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


def message_for(letter_id: str, route: Route, event: Event) -> Message:
    """Return what Celery would send for the task, protocol 2 (decisions 14)."""
    task_id = str(uuid.uuid5(_TASK_IDS, f"{letter_id}\x00{route.task}\x00{route.queue}"))
    return celery_message(route.task, task_id, event, route.queue, origin="angzarr-dlq")
