"""Holds: why an entry is held. What is held already has none, and is left to people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column, which costs no rewrite of the table."""
    op.add_column("ledger_entries", sa.Column("hold", sa.Text))
