"""Publication: an event as its publisher gives it, the error that accounts for many, and the port.

A `Publisher` hands a raw message to the broker: confirmed, or an error.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias

from angzarr.errors import (
    BrokerUnavailable,
    EventDoesNotFit,
    PublishIncomplete,
)
from angzarr.events.event import Event, Message, Priority, check_domain, event_type_of, to_json
from angzarr.events.headers import MAX_SEQUENCE, QUEUE, sequence_problem, to_headers

#: What a Celery publisher writes behind the arguments.
_EMBED: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
#: Celery's own bound for its texts of the arguments.
_LONGEST_REPR: Final = 1024


def celery_message(
    task: str,
    task_id: str,
    event: Event,
    queue: str,
    *,
    origin: str,
    headers: Mapping[str, Any] | None = None,
) -> Message:
    """The message that gives *event* to *task* by way of *queue*.

    *origin* says who wrote it; *headers* are sent besides those of the event.
    """
    return Message(
        body=json.dumps([[event.data], {}, _EMBED]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers={
            **_celery_headers(task, task_id, [event.data], origin),
            **to_headers(event),
            **(headers or {}),
            QUEUE: queue,
        },
        queue=queue,
        exchange="",
        routing_key=queue,
        properties={"correlation_id": task_id, "reply_to": ""},
    )


def _celery_headers(task: str, task_id: str, args: list[Any], origin: str) -> dict[str, Any]:
    return {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": repr(args)[:_LONGEST_REPR],
        "kwargsrepr": "{}",
        "origin": origin,
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }


_TEXTS: Final = ("type", "edition", "correlation_id", "causation_id", "tenant_id")


#: What a publisher says of configurations: their versions, or that the current ones are meant.
Pins: TypeAlias = Mapping[str, str] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Publication:
    """An event to be published and what its publisher says of it; None: nothing said."""

    event: object
    _: KW_ONLY
    type: str | None = None
    id: str | uuid.UUID | None = None
    domain: str | None = None
    root: str | uuid.UUID | None = None
    edition: str | None = None
    sequence: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    tenant_id: str | None = None
    priority: Priority | str | None = None
    #: Versions by configuration; or configurations to be pinned to their current versions.
    config_pins: Pins | None = None
    occurred_at: datetime | None = None

    def with_common(self, common: Mapping[str, Any]) -> Publication:
        """This with *common* wherever it says nothing itself."""
        missing = {name: said for name, said in common.items() if getattr(self, name) is None}
        return replace(self, **missing) if missing else self

    def as_event(self, cause: Event | None, now: datetime) -> Event:
        """The event with an id, in the flow of *cause*, the event that is being handled.

        Raises UnserializableEvent, InvalidDomainName, ConfigurationError (no type),
        EventDoesNotFit (a field whose value it cannot have).
        """
        if self.domain is not None:
            check_domain(self.domain)
        refuse_sequence(self.sequence)
        for name in _TEXTS:
            said = getattr(self, name)
            if said is not None and not isinstance(said, str):
                raise _unfit(name, said, "a string")
        if self.occurred_at is not None and not isinstance(self.occurred_at, datetime):
            raise _unfit("occurred_at", self.occurred_at, "a datetime")
        event_id = str(self.id or uuid.uuid4())
        flow, causing = (None, None) if cause is None else (cause.correlation_id, cause.id)
        return Event(
            id=event_id,
            type=self.type or event_type_of(self.event),
            data=to_json(self.event),
            domain=self.domain,
            root=None if self.root is None else str(self.root),
            edition=self.edition,
            sequence=self.sequence,
            correlation_id=self.correlation_id or flow or causing or event_id,
            causation_id=self.causation_id or causing,
            tenant_id=self.tenant_id,
            priority=_priority(self.priority),
            config_pins=_pins(self.config_pins, cause),
            occurred_at=self.occurred_at or now,
            depth=0 if cause is None else cause.depth + 1,
        )

    @property
    def unpinned(self) -> Sequence[str]:
        """The configurations that are to be pinned to their current versions."""
        said = self.config_pins
        return () if said is None or isinstance(said, Mapping) else said

    @property
    def is_bare(self) -> bool:
        """Whether the event is bare JSON; any other was checked when it was made."""
        return isinstance(self.event, dict | list | str | int | float | bool | None)


def _unfit(name: str, value: object, what: str) -> EventDoesNotFit:
    msg = f"{name} must be {what}; got {value!r:.50} ({type(value).__name__})"
    return EventDoesNotFit(msg)


def _priority(said: Priority | str | None) -> Priority:
    if said is None:
        return Priority.DEFAULT
    try:
        return Priority(said)
    except ValueError as error:
        known = ", ".join(map(repr, map(str, Priority)))
        raise _unfit("priority", said, f"one of {known}") from error


def _pins(said: Pins | None, cause: Event | None) -> dict[str, str]:
    """The pins of an event in the flow of *cause*, whose own hold where nothing else is *said*."""
    inherited = {} if cause is None else dict(cause.config_pins)
    if not said:
        return inherited
    if isinstance(said, Mapping):
        if all(isinstance(x, str) for x in chain(said, said.values())):
            return inherited | dict(said)
    elif isinstance(said, list | tuple) and all(isinstance(one, str) for one in said):
        return inherited
    raise _unfit("config_pins", said, "a mapping of strings to strings, or a list of strings")


def refuse_sequence(sequence: object) -> None:
    """Raise EventDoesNotFit for a *sequence* that a worker would not read as it was meant."""
    if sequence is None:
        return
    if type(sequence) is not int or not 0 <= sequence <= MAX_SEQUENCE:
        raise EventDoesNotFit(sequence_problem(sequence))


class NotAllPublished(PublishIncomplete):
    """Some of many events were not confirmed; publish `unconfirmed` again, it is safe.

    `confirmed`: every handler's message is on the broker. `unsent`: not one is. `uncertain`: the
    rest, sent to some handlers, or in flight when the connection ended. All in order, with the
    ids they were sent under; `missing` names the handlers that lack a confirmed message. `reasons`
    has, by event id, why an event was not confirmed; those that were not tried have none.
    """

    def __init__(  # noqa: PLR0917 - an error is pickled by its arguments
        self,
        confirmed: Sequence[Event],
        uncertain: Sequence[Event],
        unsent: Sequence[Event],
        missing: Sequence[str] = (),
        cause: str = "",
        reasons: Mapping[str, BrokerUnavailable] | None = None,
    ) -> None:
        unconfirmed = (*uncertain, *unsent)
        super().__init__(unconfirmed[0].id if unconfirmed else "", missing, cause)
        self.confirmed = tuple(confirmed)
        self.uncertain = tuple(uncertain)
        self.unsent = tuple(unsent)
        self.reasons = dict(reasons or {})
        count = len(confirmed) + len(unconfirmed)
        self.args = (
            f"of {count} events {len(confirmed)} were confirmed, {len(uncertain)} may have been"
            f" sent, {len(unsent)} were not" + (f" ({cause})" if cause else "") + "; publish"
            " error.unconfirmed again, handlers that have an event will not run twice",
        )

    @property
    def unconfirmed(self) -> tuple[Event, ...]:
        """What to publish again: the uncertain, then the unsent."""
        return (*self.uncertain, *self.unsent)

    def __reduce__(self) -> tuple[type[NotAllPublished], tuple[Any, ...]]:
        given = (self.confirmed, self.uncertain, self.unsent, self.missing, self.cause)
        return type(self), (*given, self.reasons)


class Publisher(Protocol):
    """Sends raw messages to the queue they name."""

    def publish(self, message: Message, /) -> None:
        """Wait until the broker confirmed *message*.

        Body and headers go out as they are. Raises BrokerUnavailable when it was not confirmed;
        it may then have been sent all the same, which the claim makes harmless.
        """
