"""Books and rejected commands, as their tables were before they had revisions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NEWEST = ["rejected_at", "id"]
_BY = {
    "correlation_id": ["correlation_id"],
    "newest": _NEWEST,
    "status": ["status", *_NEWEST],
    "saga": ["saga", *_NEWEST],
    "source": ["source_domain", *_NEWEST],
}


def upgrade() -> None:
    """Make the missing tables: the first user of either part made that one alone."""
    _make("event_books", *_key(), _number("next_sequence"))
    _make(
        "book_events",
        *_key(),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        *map(_text, ("id", "type")),
        sa.Column("occurred_at", sa.DateTime(timezone=True)),
        _text("event"),
    )
    _make_decisions()
    _make(
        "book_snapshots",
        *_key(),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        _number("version"),
        *map(_text, ("retention", "state")),
    )
    _make_rejections()


def _make_decisions() -> None:
    _make(
        "book_decisions",
        *_key(),
        sa.Column("cause", sa.Text, primary_key=True),
        sa.Column("odd_cause", sa.Text),
        *map(_text, ("verdict", "reason")),
        *map(_number, ("first_sequence", "event_count")),
        sa.Column("notes", sa.Text),
        _time("decided_at"),
        _text("digest"),
        sa.Column("unsent_since", sa.DateTime(timezone=True)),
    )
    name, where = "ix_book_decisions_unsent_since", sa.text("unsent_since IS NOT NULL")
    op.create_index(
        name, "book_decisions", ["unsent_since"],
        postgresql_where=where, sqlite_where=where, if_not_exists=True,
    )  # fmt: skip


def _make_rejections() -> None:
    _make(
        "rejected_commands",
        sa.Column("id", sa.Text, primary_key=True),
        _text("saga"),
        *_address("source"),
        _number("source_sequence"),
        *_address("target"),
        *map(_text, ("command_id", "command_type", "reason", "correlation_id")),
        _time("rejected_at"),
        *map(_text, ("status", "answer")),
        sa.Column("first_event", sa.Integer),
        _number("event_count"),
        _text("steps"),
        _number("asked_again"),
        *map(_text, ("asked_by", "note")),
        _time("changed_at"),
        _text("rejection"),
    )
    for name, columns in _BY.items():
        _index(name, columns)
    if op.get_bind().dialect.name == "postgresql":
        _index("beginning", ["id"], postgresql_ops={"id": "text_pattern_ops"})


def _make(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(name, *columns, if_not_exists=True)


def _index(name: str, columns: list[str], **more: Any) -> None:
    full = f"ix_rejected_commands_{name}"
    op.create_index(full, "rejected_commands", columns, if_not_exists=True, **more)


def _key() -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, primary_key=True) for name in ("domain", "root", "edition")]


def _address(of: str) -> list[sa.Column[str]]:
    return [_text(f"{of}_{name}") for name in ("domain", "root", "edition")]


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)
