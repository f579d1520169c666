"""Bulk: many rows into a table as fast as its database takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert
from sqlalchemy.exc import DBAPIError


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert *rows*, each with the same columns; by COPY on PostgreSQL.

    Raises what SQLAlchemy raises for an INSERT, IntegrityError where a row is there already.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, table, rows)
    else:
        connection.execute(insert(table), rows)


def _copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Send *rows* as one stream: no statement, no plan and no answer for each."""
    quote = connection.dialect.identifier_preparer.quote
    writers = [(name, _writer(connection, table, name)) for name in rows[0]]
    columns = ", ".join(quote(name) for name, _ in writers)
    statement = f"COPY {quote(table.name)} ({columns}) FROM STDIN"
    lent: Any = connection.connection.dbapi_connection
    try:
        with lent.cursor() as cursor, cursor.copy(statement) as stream:
            for row in rows:
                stream.write_row(
                    [write(row[name]) if write else row[name] for name, write in writers]
                )
    except connection.dialect.loaded_dbapi.Error as error:
        gone = bool(lent.closed)
        if gone:
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement,
            None,
            error,
            connection.dialect.loaded_dbapi.Error,
            connection_invalidated=gone,
            dialect=connection.dialect,
        ) from error


def _writer(connection: Connection, table: Table, name: str) -> Callable[[Any], Any] | None:
    """Return what makes a value of a column what its database takes; None: it is that already."""
    kind = table.c[name].type.dialect_impl(connection.dialect)
    return kind.bind_processor(connection.dialect)
