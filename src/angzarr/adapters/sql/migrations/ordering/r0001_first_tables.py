"""Lanes, what waits in them, their keepers, and checkpoints, as they were first."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ADDRESS = ("domain", "root", "edition")
#: Of what waits: index by its last column, where that is set.
_WAITING = {
    "ix_ordering_waiting_lent_until": ["handler", "lent_until"],
    "ix_ordering_waiting_letter_id": ["letter_id"],
}


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "ordering_lanes",
        *map(_key, ("handler", *_ADDRESS)),
        *map(_number, ("first_sequence", "next_sequence", "waiting")),
        _time("moved_at"),
        *(sa.Column(name, sa.Integer) for name in ("sent_place", "sent_times")),
        _time("sent_until"),
    )
    _index("ix_ordering_lanes_waiting", "ordering_lanes", ["handler"], "waiting > 0")
    op.create_table(
        "ordering_waiting",
        *map(_key, ("handler", *_ADDRESS)),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        _text("why"),
        _time("since", nullable=False),
        *map(_text, ("event_id", "event_type")),
        *(sa.Column(name, sa.Text) for name in ("text", "letter_id")),
        *map(_time, ("due_at", "lent_until")),
    )
    for name, columns in _WAITING.items():
        _index(name, "ordering_waiting", columns, f"{columns[-1]} IS NOT NULL")
    op.create_table(
        "ordering_keepers", _key("handlers"), _text("keeper"), _time("until", nullable=False)
    )
    op.create_table(
        "projection_checkpoints",
        *map(_key, ("projection", "event_type")),
        sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
        *map(_text, ("last_event_id", "last_event_type")),
        _time("last_processed_at", nullable=False),
        sa.Column("events_processed", sa.BigInteger, nullable=False),
    )


def _index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _time(name: str, *, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)
