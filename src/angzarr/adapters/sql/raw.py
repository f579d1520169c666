"""The driver's own connection, for what SQLAlchemy has no words for; errors are SQLAlchemy's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


@contextmanager
def raw(connection: Connection, statement: str) -> Iterator[Any]:
    """Lend the driver's connection for *statement*; what it raises is raised as a DBAPIError.

    Where the connection is lost by it, *connection* is invalidated, as SQLAlchemy does.
    """
    dialect = connection.dialect
    error_of = dialect.loaded_dbapi.Error
    lent: Any = connection.connection.dbapi_connection
    try:
        yield lent
    except error_of as error:
        gone = bool(lent.closed)
        if gone:
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement, None, error, error_of, connection_invalidated=gone, dialect=dialect
        ) from error
