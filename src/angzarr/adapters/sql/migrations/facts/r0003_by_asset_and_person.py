"""Facts say who acted in a column of its own, and are asked by that and by asset."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from angzarr.adapters.sql.migrations.columns import add_missing
from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0003"
down_revision = "0002"

#: By name: columns; a row without the first has no place in it.
_NEW: Final = {
    "ix_facts_by_asset": ["asset_id", "timestamp"],
    "ix_facts_by_person": ["by", "timestamp"],
}


def upgrade() -> None:
    """Add a column, which costs no rewrite of the table.

    Processes of the release before that run go on, and leave it NULL; new ones refuse the table.
    Facts that are there keep their rows, which the database refuses to change.
    """
    add_missing("facts", sa.Column("by", sa.Text))
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    for name, columns in _NEW.items():
        where = sa.column(columns[0]).is_not(None)
        op.drop_index(name, "facts", if_exists=True, **concurrently)
        op.create_index(
            name, "facts", columns, postgresql_where=where, sqlite_where=where, **concurrently
        )
