"""How steps ended, for deliveries that were killed before their claims ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table; older releases keep nothing in it."""
    op.create_table(
        "ordering_ends",
        sa.Column("quarter", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("skipped", sa.Text),
    )
