"""Bulk: many rows into a table as fast as its database takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert *rows*, each with the same columns."""
    if rows:
        connection.execute(insert(table), rows)
