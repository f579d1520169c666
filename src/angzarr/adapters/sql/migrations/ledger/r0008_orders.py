"""Orders of replays: what one was to be, besides its letter's message again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "replay_orders",
        sa.Column(
            "entry_id",
            sa.String(64),
            sa.ForeignKey("ledger_entries.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("replay", sa.Integer, nullable=False),
        *map(_text, ("to_queue", "to_handler")),
        sa.Column("letter", sa.LargeBinary),
        sa.Column("before", sa.LargeBinary),
        *map(_text, ("content_type", "said")),
        sa.PrimaryKeyConstraint("entry_id", "replay"),
        if_not_exists=True,
    )


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)
