"""Configurations: the versions that a person chose for a replay, instead of those of its letter."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the column, which costs no rewrite of the table; older releases leave it NULL."""
    columns = sa.inspect(op.get_bind()).get_columns("replay_orders")
    if "config" not in {column["name"] for column in columns}:  # as `if_not_exists`
        op.add_column("replay_orders", sa.Column("config", sa.Text))
