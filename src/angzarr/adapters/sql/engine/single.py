"""Single: a statement that is a transaction of its own, for what is asked for every event.

PostgreSQL's driver gets it as it is: SQLAlchemy would take five times the processor that it does.

The driver's own connection, for what SQLAlchemy has no words for; errors are SQLAlchemy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from angzarr.adapters.sql.engine.engine import in_transaction, reading, told_as
from angzarr.errors import StoreUnavailable


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


class Single:
    """Built once for *statement*, whose parameters are such that a driver knows; *reads*: only."""

    def __init__(self, engine: Engine, statement: Any, *, reads: bool = False) -> None:
        self._engine = engine
        self._statement = statement
        self._ordinary = reading(engine) if reads else engine
        self._text = ""
        self._fixed: Mapping[str, Any] = {}
        if engine.dialect.name == "postgresql":
            compiled = statement.compile(dialect=engine.dialect)
            self._text = str(compiled)
            known = compiled.params.items()
            self._fixed = {name: value for name, value in known if value is not None}

    def first(self, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the first row of the answer, None without one; raises StoreUnavailable.

        The statement is safe to repeat: where it fails, it is sent again the ordinary way.
        """
        if self._text:
            try:
                return self._straight(values)
            except self._engine.dialect.loaded_dbapi.Error:
                pass  # the ordinary way tells what is wrong
        return in_transaction(
            self._ordinary, lambda connection: connection.execute(self._statement, values).first()
        )

    def first_in(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return what `first` does, in the transaction of *connection*, and once."""
        if self._text:
            with raw(connection, self._text) as driver:
                return self._sent(driver, values)
        return connection.execute(self._statement, values).first()

    def _straight(self, values: Mapping[str, Any]) -> Sequence[Any] | None:
        with told_as(StoreUnavailable, self._engine):
            connection = self._engine.connect()
        with connection:
            driver: Any = connection.connection.driver_connection
            try:
                driver.autocommit = True
                row = self._sent(driver, values)
                driver.autocommit = False
            except BaseException:  # a time limit may have come amid it
                connection.invalidate()
                raise
            return row

    def _sent(self, driver: Any, values: Mapping[str, Any]) -> Sequence[Any] | None:
        row: Sequence[Any] | None = driver.execute(self._text, {**self._fixed, **values}).fetchone()
        return row
