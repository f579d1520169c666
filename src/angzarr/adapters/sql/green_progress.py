"""How far a green space is: the rows that each batch writes along with its effects."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from angzarr.adapters.sql.book_rows import address_in, to_text
from angzarr.adapters.sql.green_places import forget, insert_of
from angzarr.adapters.sql.green_space import Layout
from angzarr.adapters.sql.green_tables import (
    angzarr_rebuild,
    angzarr_rebuild_failures,
    angzarr_rebuild_types,
)
from angzarr.adapters.sql.lane_rows import name_key
from angzarr.aggregates.event_store import Head
from angzarr.events.event import Event
from angzarr.projections.green import Failure, Plan, Progress


def fingerprint_of(plan: Plan, layouts: Sequence[Layout]) -> str:
    """Return what differs where *plan* or its live tables do; its methods may change."""
    said = [plan.handler, sorted(plan.domains), plan.first, [one.shape for one in layouts]]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def start(connection: Connection, fingerprint: str, now: datetime, *, verifies: bool) -> None:
    """Write the row of a space that was just made."""
    row = {"fingerprint": fingerprint, "started_at": now, "events": 0}
    row |= {"verifies": verifies, "spoiled": False}
    connection.execute(insert(angzarr_rebuild), row)


def progress_of(connection: Connection, *, resumed: bool) -> tuple[str, Progress]:
    """Return the fingerprint of the space and how far it is."""
    row = connection.execute(select(angzarr_rebuild)).mappings().one()
    cursor = None if row["domain"] is None else Head(address_in(row), row["next_sequence"])
    left = tuple(failures(connection))
    found = Progress(row["started_at"], resumed, cursor, row["events"], left)
    said = {name: row[name] for name in ("verifies", "spoiled")}
    return row["fingerprint"], found._replace(**said)


def spoil(connection: Connection) -> None:
    """Write that effects may be there without their places."""
    connection.execute(update(angzarr_rebuild).values(spoiled=True))


def emptied(connection: Connection) -> bool | None:
    """Tell whether the live read model is emptied; None: nobody has begun to."""
    return connection.scalar(select(angzarr_rebuild.c.emptied))


def note_emptied(connection: Connection, *, done: bool) -> None:
    """Write that the live read model is being emptied, or that it is *done*."""
    connection.execute(update(angzarr_rebuild).values(emptied=done))


def failures(connection: Connection) -> list[Failure]:
    """Return the events that failed and that their aggregates stayed at."""
    table = angzarr_rebuild_failures
    rows = connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
    return [
        Failure(
            address_in(row),
            row["sequence"],
            json.loads(row["event_id"]),
            json.loads(row["event_type"]),
            json.loads(row["error"]),
        )
        for row in rows
    ]


def fail(connection: Connection, failure: Failure) -> None:
    """Keep *failure* as the one of its aggregate."""
    forget(connection, angzarr_rebuild_failures, failure.address)
    texts = {name: to_text(getattr(failure, name)) for name in ("event_id", "event_type", "error")}
    row = {**failure.address._asdict(), "sequence": failure.sequence, **texts}
    connection.execute(insert(angzarr_rebuild_failures), row)


def forgive(connection: Connection) -> None:
    """Forget all failures."""
    connection.execute(delete(angzarr_rebuild_failures))


def note(connection: Connection, events: Sequence[Event], cursor: Head | None) -> None:
    """Write where the scan is, and count *events*."""
    values: dict[str, Any] = {"events": angzarr_rebuild.c.events + len(events)}
    if cursor is not None:
        values |= {**cursor.address._asdict(), "next_sequence": cursor.next_sequence}
    connection.execute(update(angzarr_rebuild).values(values))
    if not events:
        return
    counts, last = Counter(event.type for event in events), {one.type: one for one in events}
    row = insert_of(connection)(angzarr_rebuild_types)
    new, here = row.excluded, angzarr_rebuild_types.c
    added = {"last_event_id": new.last_event_id, "events": here.events + new.events}
    connection.execute(
        row.on_conflict_do_update(index_elements=[here.event_type], set_=added),
        [
            {
                "event_type": name_key(kind),
                "last_event_id": to_text(last[kind].id),
                "last_event_type": to_text(kind),
                "events": count,
            }
            for kind, count in sorted(counts.items())
        ],
    )
