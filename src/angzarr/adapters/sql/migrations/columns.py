"""New columns of tables that are there, which may have been added by a run that was cut."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op


def add_missing(table: str, *columns: sa.Column[Any]) -> None:
    """Add those of *columns* that *table* does not have.

    PostgreSQL commits them before it builds indexes without a lock, and the revision is noted after
    that: a process that ends meanwhile leaves them behind, and the next one begins again.
    """
    there = {one["name"] for one in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)
