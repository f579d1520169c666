"""Numbers of four bytes become numbers of eight, where the database tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op


def widen(columns: Mapping[str, Sequence[str]]) -> None:
    """Widen *columns*, by table; SQLite's numbers have eight bytes, whatever their type is called.

    One statement a table, which PostgreSQL writes anew once; the tables have no other user then.
    """
    bind = op.get_bind()
    if bind.dialect.name != "postgresql":
        return
    for table, names in columns.items():
        kept = {
            column["name"]
            for column in sa.inspect(bind).get_columns(table)
            if isinstance(column["type"], sa.BigInteger)
        }
        if narrow := [name for name in names if name not in kept]:
            changes = ", ".join(f"ALTER COLUMN {name} TYPE BIGINT" for name in narrow)
            op.execute(sa.text(f"ALTER TABLE {table} {changes}"))
