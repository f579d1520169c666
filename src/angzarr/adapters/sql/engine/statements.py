"""Statements that SQLAlchemy makes slowly or not at all: fast ones, bulk ones, locks, the time.

`Single` hands PostgreSQL's driver a statement that runs for every event: SQLAlchemy would take
five times its processor time. `insert_rows` and `as_table` move many rows at once. `takes_lock`
polls an advisory lock: a statement that waits for it would block a concurrent index build.
Leases are measured by the database's clock, never by a worker's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Engine,
    Float,
    FromClause,
    Integer,
    Result,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    func,
    insert,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from angzarr.adapters.sql.engine.engine import in_transaction, reading, unavailable_as
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
        """The first row of the answer, None without one; raises StoreUnavailable.

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
        """The answer of `first`, in the transaction of *connection*, and without a second try."""
        if self._text:
            with raw(connection, self._text) as driver:
                return self._sent(driver, values)
        return connection.execute(self._statement, values).first()

    def _straight(self, values: Mapping[str, Any]) -> Sequence[Any] | None:
        with unavailable_as(StoreUnavailable, self._engine):
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


def insert_into(there: Engine | Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of the dialect *there*, which can say what to do where there is a row."""
    return insert_of(there.dialect.name, table)


def insert_of(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    """The same, for the dialect of this name: to be built once."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert *rows*, each with the same columns; see `insert_columns`."""
    if rows:
        names = tuple(rows[0])
        insert_columns(connection, table, names, [[row[name] for row in rows] for name in names])


def insert_columns(
    connection: Connection, table: Table, names: tuple[str, ...], columns: Sequence[Sequence[Any]]
) -> None:
    """Insert rows, given as *columns* that are called *names*; by COPY on PostgreSQL.

    Raises what SQLAlchemy raises for an INSERT: IntegrityError where a row is there already,
    DataError, TypeError or OverflowError for a value that no column can hold.
    """
    if not columns or not columns[0]:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, _copy_into(table, names, connection.dialect), columns)
    else:
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        connection.execute(insert(table), rows)


def among(
    connection: Connection, column: Column[Any], values: Iterable[str]
) -> ColumnElement[bool]:
    """The condition that *column* is one of *values*; on PostgreSQL as one array.

    A list of its own length would be another statement each time, to be written and read anew.
    """
    wanted = sorted(set(values))
    if connection.dialect.name == "postgresql":
        return column == any_(literal(wanted, ARRAY(column.type)))
    return column.in_(wanted)


class Lookup:
    """*statement* for the rows whose *column* is one of some texts: built once, for all of them.

    On PostgreSQL they travel as one text, since its driver writes an array text by text.
    """

    def __init__(self, statement: Select[Any], column: Column[str]) -> None:
        self._statement = statement
        self._column = column
        split = func.string_to_array(bindparam("wanted", type_=Text), _BETWEEN)
        self._at_once = statement.where(column == any_(split))

    def rows(self, connection: Connection, values: Iterable[str]) -> Result[Any]:
        """The rows of *values*, which are as the column stores them."""
        wanted = sorted(set(values))
        joined = _BETWEEN.join(wanted)
        splits = wanted and wanted[0] and joined.count(_BETWEEN) == len(wanted) - 1
        if splits and connection.dialect.name == "postgresql":
            return connection.execute(self._at_once, {"wanted": joined})
        return connection.execute(self._statement.where(among(connection, self._column, wanted)))


#: What stands between texts that travel as one. One that holds it travels in an array.
_BETWEEN: Final = "\x1f"


def as_table(
    dialect: Dialect, name: str, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]
) -> FromClause:
    """*rows* of texts and numbers as a table with the names and types of *columns*.

    It is one statement for however many there are, at least one: arrays on PostgreSQL, else JSON.
    """
    if dialect.name == "postgresql":
        pairs = zip(columns, zip(*rows, strict=True), strict=True)
        lists = [literal(list(values), ARRAY(column.type)) for column, values in pairs]
        names = [column.name for column in columns]
        return func.unnest(*lists).table_valued(*names).render_derived(name)
    row = func.json_each(json.dumps([list(row) for row in rows])).table_valued("value").c.value
    parts = [
        func.json_extract(row, f"$[{index}]", type_=column.type).label(column.name)
        for index, column in enumerate(columns)
    ]
    return select(*parts).subquery(name)


class _CopyInto(NamedTuple):
    """A COPY into columns of a table: built once."""

    statement: str
    #: The types of the columns as PostgreSQL lists them, without lengths.
    types: Sequence[str]
    #: Makes each column what the driver takes.
    write: Sequence[Callable[[Sequence[Any]], Sequence[Any]]]


@lru_cache(64)
def _copy_into(table: Table, names: tuple[str, ...], dialect: Dialect) -> _CopyInto:
    quote = dialect.identifier_preparer.quote
    listed = ", ".join(map(quote, names))
    types = [table.c[name].type for name in names]
    return _CopyInto(
        f"COPY {quote(table.name)} ({listed}) FROM STDIN (FORMAT BINARY)",
        [kind.compile(dialect).lower().partition("(")[0] for kind in types],
        [_writer(kind, dialect) for kind in types],
    )


def _copy(connection: Connection, copy: _CopyInto, columns: Sequence[Sequence[Any]]) -> None:
    """Send rows as one stream: no statement, no plan and no answer for each."""
    written = [write(values) for write, values in zip(copy.write, columns, strict=True)]
    with (
        raw(connection, copy.statement) as lent,
        lent.cursor() as cursor,
        cursor.copy(copy.statement) as stream,
    ):
        stream.set_types(copy.types)
        for values in zip(*written, strict=True):
            stream.write_row(values)


@runtime_checkable
class _WritesColumns(Protocol):
    """A type that makes all values of a column at once what it takes."""

    def write_all(self, values: Sequence[Any], /) -> Sequence[Any]:
        """*values* as PostgreSQL's driver takes them."""


def _writer(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The function that makes the values of a column of *kind* what the driver takes."""
    if isinstance(kind, _WritesColumns):
        return kind.write_all
    if type(kind) is Integer:
        return _int4
    write = kind.dialect_impl(dialect).bind_processor(dialect)
    return (lambda values: values) if write is None else lambda values: list(map(write, values))


def _int4(numbers: Sequence[int | None]) -> Sequence[int | None]:
    """*numbers*; raises OverflowError where psycopg would store another one."""
    for number in set(numbers):
        if number is not None and not -(2**31) <= number < 2**31:
            msg = f"{number} is beyond what a column of 4 bytes can hold"
            raise OverflowError(msg)
    return numbers


#: Seconds from one look to the next.
_LOOK: Final = 0.05


def takes_lock(
    connection: Connection,
    lock: int,
    patience: float,
    between: Callable[[], object] = lambda: None,
) -> bool:
    """True if the transaction has *lock* until its end; asks for up to *patience* seconds.

    *between* is done after each look that found it taken.
    """
    until = time.monotonic() + patience
    while not connection.scalar(select(func.pg_try_advisory_xact_lock(lock))):
        if time.monotonic() > until:
            return False
        between()
        time.sleep(_LOOK)
    return True


#: How SQLAlchemy writes a datetime to SQLite; SQLite's clock knows milliseconds.
_SQLITE_FORMAT = "%Y-%m-%d %H:%M:%f000"


def utc(moment: datetime) -> datetime:
    """*moment* in UTC; a naive one is UTC already (SQLite forgets the zone)."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def database_now(engine: Engine) -> ColumnElement[datetime]:
    """The present moment, also within a long transaction."""
    if engine.dialect.name == "postgresql":
        return func.clock_timestamp(type_=DateTime(timezone=True))
    return func.strftime(_SQLITE_FORMAT, "now", type_=DateTime(timezone=True))


def database_time_after(engine: Engine) -> ColumnElement[datetime]:
    """The moment that is the parameter ``seconds`` (fractions allowed) from now."""
    seconds = bindparam("seconds", type_=Float)
    if engine.dialect.name == "postgresql":
        span = func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        return database_now(engine) + span
    span = func.printf("%+.3f seconds", seconds)
    return func.strftime(_SQLITE_FORMAT, "now", span, type_=DateTime(timezone=True))


def ask_time(engine: Engine) -> datetime:
    """The database's time; raises StoreUnavailable."""
    asked = select(database_now(engine))
    there: datetime = in_transaction(reading(engine), lambda one: one.execute(asked).scalar_one())
    return there
