"""Event: what happened, and to whom it belongs (spec D1). A value; it does no I/O.

Message: a broker message as it was received, complete enough to be published again.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from angzarr.errors import InvalidDomainName
from angzarr.runtime.fast_init import fast_init

#: Long enough for people, short enough for every backend: SQS allows 80 characters and
#: ``angzarr-dlq-`` takes 12 of them (spec L2).
MAX_DOMAIN_LENGTH = 64

_DOMAIN = re.compile(r"[a-z][a-z0-9.-]*\Z")
_TASK_IDS = uuid.UUID("6b1c7a52-6f0e-5f0b-9a55-0d0f3d0c5a11")


class Priority(StrEnum):
    """How long an event may wait; feeds the backoff policy (spec D3)."""

    REALTIME = "realtime"
    BACKGROUND = "background"
    DEFAULT = "default"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as a handler sees it; `data` is a JSON value."""

    id: str
    type: str
    data: Any
    domain: str | None = None
    root: str | None = None
    edition: str | None = None
    sequence: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    tenant_id: str | None = None
    priority: Priority = Priority.DEFAULT
    config_pins: Mapping[str, str] = field(default_factory=dict)
    occurred_at: datetime | None = None
    traceparent: str | None = None
    #: How many events and commands came before it in its chain.
    depth: int = 0


def check_domain(name: str) -> str:
    """Return *name* if every dead-letter backend can carry it (decisions 20), else raise."""
    if not isinstance(name, str) or not _DOMAIN.match(name) or len(name) > MAX_DOMAIN_LENGTH:
        msg = (
            f"domain {name!r} cannot be used: write it with a-z, 0-9, '.' and '-', starting with"
            f" a letter, at most {MAX_DOMAIN_LENGTH} characters"
        )
        raise InvalidDomainName(msg)
    return name


#: Made once: `json.dumps` would make one a call.
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
)


def canonical_json(value: object) -> bytes:
    """Write *value* so that equal JSON values give equal bytes: sorted keys, no spaces, UTF-8."""
    return _CANONICAL.encode(value).encode("utf-8", "surrogatepass")


def digest(value: object) -> str:
    """Return the SHA-256 of *value*'s canonical JSON: the id of an event that has none (D1)."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def task_id_for(event_id: str, handler: str) -> str:
    """Return the task id of *event_id* for *handler*: the same pair gives the same id (13)."""
    return str(uuid.uuid5(_TASK_IDS, f"{event_id}\x00{handler}"))


def compensation_id_for(event_id: str, handler: str, task: str) -> str:
    """Return the id of the event by which *task* undoes what *handler* did with *event_id*.

    The same three give the same id. *task* may undo two handlers of one event, and take the event
    itself besides: each of these has a claim of its own.
    """
    return str(uuid.uuid5(_TASK_IDS, f"{event_id}\x00{handler}\x00compensated by\x00{task}"))


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One broker message, raw. `queue` is where it was first sent, never a delay queue's name."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    queue: str
    exchange: str = ""
    routing_key: str = ""
    priority: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The Celery task name, or an empty string for a foreign message."""
        return str(self.headers.get("task") or "")

    @property
    def id(self) -> str:
        """The Celery task id, or an empty string for a foreign message."""
        return str(self.headers.get("id") or "")
