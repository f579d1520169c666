"""Edits that replay jobs carry, until a second person approved them and after (spec A4)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column, which costs no rewrite of the table, and the table."""
    columns = sa.inspect(op.get_bind()).get_columns("replay_jobs")
    if "edit" not in {column["name"] for column in columns}:  # as `if_not_exists`
        op.add_column("replay_jobs", sa.Column("edit", sa.String(64)))
    op.create_table(
        "replay_job_edits",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column(
            "entry_id",
            sa.String(64),
            sa.ForeignKey("ledger_entries.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("replays", sa.Integer, nullable=False),
        sa.Column("letter_id", sa.Text, nullable=False),
        sa.Column("needs_approval", sa.Boolean, nullable=False),
        sa.Column("letter", sa.LargeBinary, nullable=False),
        sa.Column("before", sa.LargeBinary),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index(
        "replay_job_edits_by_entry", "replay_job_edits", ["entry_id"], if_not_exists=True
    )
