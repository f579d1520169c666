"""The tables of event books and rejected commands (specs C1, C4): schema, rows and pruning.

Times are UTC; an empty edition is the main line. `migrations/books` lead to these tables: a change
here needs a revision there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Index,
    Integer,
    MetaData,
    RowMapping,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    select,
)

from angzarr.adapters.sql.engine.schema import ONLY_ON, Schema, version_table
from angzarr.adapters.sql.engine.statements import utc
from angzarr.aggregates.book import Address, Decision, Retention, Snapshot, WriteVerdict
from angzarr.events.event import Event, Priority
from angzarr.resilience.idempotency import key_part
from angzarr.sagas.log import CLOSED

METADATA = MetaData()

#: The revision of the tables below and of those of rejected commands.
HEAD: Final = "0003"


def _key() -> tuple[Column[str], ...]:
    return tuple(Column(name, Text, primary_key=True) for name in ("domain", "root", "edition"))


#: One row a book; who writes to the book holds it.
event_books = Table(
    "event_books",
    METADATA,
    *_key(),
    Column("next_sequence", Integer, nullable=False),
)

#: `event` is all that the other columns do not say, as JSON.
book_events = Table(
    "book_events",
    METADATA,
    *_key(),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("occurred_at", DateTime(timezone=True)),
    Column("event", Text, nullable=False),
)

#: What was decided of each cause: a command, an event or a notification.
book_decisions = Table(
    "book_decisions",
    METADATA,
    *_key(),
    Column("cause", Text, primary_key=True),
    # As JSON, where the key cannot be the cause itself.
    Column("odd_cause", Text),
    Column("verdict", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("first_sequence", Integer, nullable=False),
    Column("event_count", Integer, nullable=False),
    Column("notes", Text),
    Column("decided_at", DateTime(timezone=True), nullable=False),
    # Of a command: its type and the digest of its data.
    Column("digest", Text, nullable=False),
    # Set while its events may be unpublished.
    Column("unsent_since", DateTime(timezone=True)),
)
Index(
    "ix_book_decisions_unsent_since",
    book_decisions.c.unsent_since,
    postgresql_where=book_decisions.c.unsent_since.is_not(None),
    sqlite_where=book_decisions.c.unsent_since.is_not(None),
)
#: What may be forgotten some day, the oldest first.
Index(
    "ix_book_decisions_sent",
    book_decisions.c.decided_at,
    postgresql_where=book_decisions.c.unsent_since.is_(None),
    sqlite_where=book_decisions.c.unsent_since.is_(None),
)

book_snapshots = Table(
    "book_snapshots",
    METADATA,
    *_key(),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("retention", Text, nullable=False),
    Column("state", Text, nullable=False),
)

books_version = version_table("books", METADATA)


def _address(of: str) -> tuple[Column[str], ...]:
    return tuple(
        Column(f"{of}_{name}", Text, nullable=False) for name in ("domain", "root", "edition")
    )


rejected_commands = Table(
    "rejected_commands",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("saga", Text, nullable=False),
    *_address("source"),
    Column("source_sequence", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
    *_address("target"),
    Column("command_id", Text, nullable=False),
    Column("command_type", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("correlation_id", Text, nullable=False, index=True),
    Column("rejected_at", DateTime(timezone=True), nullable=False),
    Column("status", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("first_event", Integer),
    Column("event_count", Integer, nullable=False),
    Column("steps", Text, nullable=False),
    Column("asked_again", Integer, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("rejection", Text, nullable=False),
    Index("ix_rejected_commands_newest", "rejected_at", "id"),
    Index("ix_rejected_commands_status", "status", "rejected_at", "id"),
    Index("ix_rejected_commands_changed", "status", "changed_at"),
    Index("ix_rejected_commands_saga", "saga", "rejected_at", "id"),
    Index("ix_rejected_commands_source", "source_domain", "rejected_at", "id"),
    # A primary key is sorted as people sort, which serves no LIKE.
    Index(
        "ix_rejected_commands_beginning",
        "id",
        postgresql_ops={"id": "text_pattern_ops"},
        info={ONLY_ON: "postgresql"},
    ).ddl_if(dialect="postgresql"),
)

#: Characters of a cause in a key: with the longest root and edition, of letters of four bytes, it
#: fills the 2,704 bytes that PostgreSQL gives to an entry of an index.
_MAX_CAUSE: Final = 120

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"))  # `dumps` would make one each time

#: What an event says besides the columns.
_TEXTS = ("correlation_id", "causation_id", "tenant_id", "traceparent")


def key_of(address: Address) -> dict[str, str]:
    """The columns that name a book."""
    return address._asdict()


def address_in(row: RowMapping) -> Address:
    """The address of the book that *row* belongs to."""
    return Address(*(row[name] for name in Address._fields))


def event_row(event: Event) -> dict[str, Any]:
    """The row of an event that has its place in a book."""
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
    """The event in *row*."""
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
    """The text that stands for *cause*, any text that a queue brought, in a key."""
    return key_part(cause, _MAX_CAUSE)


def decision_row(decision: Decision, address: Address, first: int, now: datetime) -> dict[str, Any]:
    """The row of a decision whose events begin at *first*."""
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
    """The decision in *row*, which appended *events*."""
    return Decision(
        cause=row["cause"] if row["odd_cause"] is None else json.loads(row["odd_cause"]),
        verdict=WriteVerdict(row["verdict"]),
        reason=json.loads(row["reason"]),
        events=tuple(events),
        notes=None if row["notes"] is None else json.loads(row["notes"]),
        digest=json.loads(row["digest"]),
    )


def snapshot_row(snapshot: Snapshot, address: Address) -> dict[str, Any]:
    """The row of a snapshot."""
    return {
        **key_of(address),
        "sequence": snapshot.sequence,
        "version": snapshot.version,
        "retention": snapshot.retention.value,
        "state": to_text(snapshot.state),
    }


def snapshot_of(row: RowMapping) -> Snapshot:
    """The snapshot in *row*."""
    return Snapshot(
        sequence=row["sequence"],
        state=json.loads(row["state"]),
        version=row["version"],
        retention=Retention(row["retention"]),
    )


def to_text(value: object) -> str:
    """Write *value* as ASCII, in which a database finds nothing that it refuses."""
    return _COMPACT.encode(value)


#: Before there were revisions each of its two parts was made by the first who needed it.
BOOKS: Final = Schema(
    name="books",
    called="the database of event books",
    metadata=METADATA,
    head=HEAD,
    first=(event_books, rejected_commands),
    cure="angzarr database upgrade books",
    setting="books_migrate",
)

_CLOSED: Final = sorted(status.value for status in CLOSED)


def prune_decisions(connection: Connection, before: datetime, limit: int) -> int:
    """Remove the oldest decisions of before *before* whose events are sent."""
    columns = book_decisions.c
    old = (columns.decided_at < utc(before), columns.unsent_since.is_(None))
    wanted = select(*book_decisions.primary_key).where(*old).order_by(columns.decided_at)
    return _remove(connection, book_decisions, wanted.limit(limit))


def prune_rejections(connection: Connection, before: datetime, limit: int) -> int:
    """Remove closed cases that did not change since *before*, the oldest of a status first.

    One status after the other: asked for all at once, PostgreSQL reads those that are open too.
    """
    columns, removed = rejected_commands.c, 0
    for status in _CLOSED:
        old = (columns.status == status, columns.changed_at < utc(before))
        wanted = select(*rejected_commands.primary_key).where(*old).order_by(columns.changed_at)
        removed += _remove(connection, rejected_commands, wanted.limit(limit - removed))
        if removed == limit:
            break
    return removed


def _remove(connection: Connection, table: Table, wanted: Select[Any]) -> int:
    """Remove the rows whose keys are *wanted*; they are locked, and others' locks passed over."""
    locked = wanted.with_for_update(skip_locked=True)
    keys: Sequence[Mapping[str, Any]] = [
        {f"key_{name}": value for name, value in row.items()}
        for row in connection.execute(locked).mappings()
    ]
    if keys:
        this = [column == bindparam(f"key_{column.name}") for column in table.primary_key]
        connection.execute(delete(table).where(*this), keys)
    return len(keys)
