"""Events, decisions and snapshots of books as rows, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import RowMapping

from angzarr.adapters.sql.delivery.facts import utc
from angzarr.aggregates.book import Address, Decision, Retention, Snapshot, WriteVerdict
from angzarr.events.event import Event, Priority
from angzarr.resilience.idempotency import key_part

#: Characters of a cause in a key: with the longest root and edition, of letters of four bytes, it
#: fills the 2,704 bytes that PostgreSQL gives to an entry of an index.
_MAX_CAUSE: Final = 120

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"))  # `dumps` would make one each time

#: What an event says besides the columns.
_TEXTS = ("correlation_id", "causation_id", "tenant_id", "traceparent")


def key_of(address: Address) -> dict[str, str]:
    """Return the columns that name a book."""
    return address._asdict()


def address_in(row: RowMapping) -> Address:
    """Return the address of the book that *row* belongs to."""
    return Address(*(row[name] for name in Address._fields))


def event_row(event: Event) -> dict[str, Any]:
    """Return the row of an event that has its place in a book."""
    said: dict[str, Any] = {"data": event.data}
    said |= {name: text for name in _TEXTS if (text := getattr(event, name)) is not None}
    if event.priority is not Priority.DEFAULT:
        said["priority"] = event.priority.value
    if event.config_pins:
        said["config_pins"] = dict(event.config_pins)
    if event.depth:
        said["depth"] = event.depth
    return {
        "domain": event.domain,
        "root": event.root,
        "edition": event.edition or "",
        "sequence": event.sequence,
        "id": event.id,
        "type": event.type,
        # SQLite drops the zone of what it is given.
        "occurred_at": event.occurred_at and utc(event.occurred_at),
        "event": to_text(said),
    }


def event_of(row: RowMapping) -> Event:
    """Return the event in *row*."""
    said = json.loads(row["event"])
    return Event(
        id=row["id"],
        type=row["type"],
        data=said["data"],
        domain=row["domain"],
        root=row["root"],
        edition=row["edition"] or None,
        sequence=row["sequence"],
        priority=Priority(said.get("priority", Priority.DEFAULT)),
        config_pins=said.get("config_pins", {}),
        depth=said.get("depth", 0),
        occurred_at=row["occurred_at"] and utc(row["occurred_at"]),
        **{name: said[name] for name in _TEXTS if name in said},
    )


def cause_key(cause: str) -> str:
    """Return what stands for *cause*, which is whatever text a queue brought, in a key."""
    return key_part(cause, _MAX_CAUSE)


def decision_row(decision: Decision, address: Address, first: int, now: datetime) -> dict[str, Any]:
    """Return the row of a decision whose events begin at *first*."""
    return {
        **key_of(address),
        "cause": (key := cause_key(decision.cause)),
        "odd_cause": None if key == decision.cause else to_text(decision.cause),
        "verdict": decision.verdict.value,
        "reason": to_text(decision.reason),
        "first_sequence": first,
        "event_count": len(decision.events),
        "notes": None if decision.notes is None else to_text(decision.notes),
        "decided_at": now,
        "digest": to_text(decision.digest),
    }


def decision_of(row: Mapping[Any, Any], events: Sequence[Event]) -> Decision:
    """Return the decision in *row*, which appended *events*."""
    return Decision(
        cause=row["cause"] if row["odd_cause"] is None else json.loads(row["odd_cause"]),
        verdict=WriteVerdict(row["verdict"]),
        reason=json.loads(row["reason"]),
        events=tuple(events),
        notes=None if row["notes"] is None else json.loads(row["notes"]),
        digest=json.loads(row["digest"]),
    )


def snapshot_row(snapshot: Snapshot, address: Address) -> dict[str, Any]:
    """Return the row of a snapshot."""
    return {
        **key_of(address),
        "sequence": snapshot.sequence,
        "version": snapshot.version,
        "retention": snapshot.retention.value,
        "state": to_text(snapshot.state),
    }


def snapshot_of(row: RowMapping) -> Snapshot:
    """Return the snapshot in *row*."""
    return Snapshot(
        sequence=row["sequence"],
        state=json.loads(row["state"]),
        version=row["version"],
        retention=Retention(row["retention"]),
    )


def to_text(value: object) -> str:
    """Write *value* as ASCII, in which a database finds nothing that it refuses."""
    return _COMPACT.encode(value)
