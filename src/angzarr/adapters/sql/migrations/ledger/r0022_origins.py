"""Lines of an entry's history say where they come from: the command line, the API, a rule."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add a column, which costs no rewrite of the table; older releases leave it NULL."""
    columns = {one["name"] for one in sa.inspect(op.get_bind()).get_columns("ledger_history")}
    if "origin" not in columns:
        op.add_column("ledger_history", sa.Column("origin", sa.Text))
