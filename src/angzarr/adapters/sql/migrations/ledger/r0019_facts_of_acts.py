"""Facts of acts: the outbox in which they wait for a relay, and the trace of each entry's event."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Make the table, and add the column, which costs no rewrite; older releases leave it empty."""
    op.create_table(
        "ledger_fact_outbox",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    columns = sa.inspect(op.get_bind()).get_columns("ledger_entries")
    if "trace_id" not in {column["name"] for column in columns}:  # as `if_not_exists`
        op.add_column(
            "ledger_entries", sa.Column("trace_id", sa.Text, nullable=False, server_default="")
        )
