"""Sequences: whether the command of a replay still expects its aggregate where its letter did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column, which costs no rewrite of the table; older releases leave it NULL."""
    columns = sa.inspect(op.get_bind()).get_columns("replay_orders")
    if "sequence" not in {column["name"] for column in columns}:  # as `if_not_exists`
        op.add_column("replay_orders", sa.Column("sequence", sa.Text))
