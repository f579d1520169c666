"""The tables of event books (spec C1). Times are UTC; an empty edition is the main line.

This and `rejection_tables` are what `migrations/books` lead to; whoever changes a table adds a
revision there.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, DateTime, Index, Integer, MetaData, Table, Text

from angzarr.adapters.sql.engine.schema import version_table

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
    # Set while nobody may have published its events.
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
