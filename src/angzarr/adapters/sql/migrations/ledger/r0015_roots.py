"""Roots: the aggregate that an entry's event is of, so that its failures can be looked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column, which costs no rewrite of the table; older releases leave it empty."""
    columns = sa.inspect(op.get_bind()).get_columns("ledger_entries")
    if "root" not in {column["name"] for column in columns}:  # as `if_not_exists`
        op.add_column(
            "ledger_entries", sa.Column("root", sa.Text, nullable=False, server_default="")
        )
