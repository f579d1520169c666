"""Bulk: many rows into a table, and many values in one question, as fast as a database goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    Integer,
    Table,
    any_,
    func,
    insert,
    literal,
    select,
)

from angzarr.adapters.sql.engine.single import raw


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert *rows*, each with the same columns; by COPY on PostgreSQL.

    Raises what SQLAlchemy raises for an INSERT: IntegrityError where a row is there already,
    DataError, TypeError or OverflowError for a value that no column can hold.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, table, rows)
    else:
        connection.execute(insert(table), rows)


def among(
    connection: Connection, column: Column[Any], values: Iterable[str]
) -> ColumnElement[bool]:
    """Return that *column* is one of *values*; on PostgreSQL as one array.

    A list of its own length would be another statement each time, to be written and read anew.
    """
    wanted = sorted(set(values))
    if connection.dialect.name == "postgresql":
        return column == any_(literal(wanted, ARRAY(column.type)))
    return column.in_(wanted)


def as_table(
    dialect: Dialect, name: str, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]
) -> FromClause:
    """Return *rows* of texts and numbers as a table with the names and types of *columns*.

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


def _copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Send *rows* as one stream: no statement, no plan and no answer for each."""
    dialect, names = connection.dialect, list(rows[0])
    quote = dialect.identifier_preparer.quote
    columns = ", ".join(map(quote, names))
    statement = f"COPY {quote(table.name)} ({columns}) FROM STDIN (FORMAT BINARY)"
    writers = [(name, _writer(table, name, dialect)) for name in names]
    types = [_type_of(table, name, dialect) for name in names]
    with (
        raw(connection, statement) as lent,
        lent.cursor() as cursor,
        cursor.copy(statement) as stream,
    ):
        stream.set_types(types)
        for row in rows:
            stream.write_row([write(row[name]) if write else row[name] for name, write in writers])


def _type_of(table: Table, name: str, dialect: Dialect) -> str:
    """Return the name of a column's type as PostgreSQL lists it, without a length."""
    return table.c[name].type.compile(dialect).lower().partition("(")[0]


def _writer(table: Table, name: str, dialect: Dialect) -> Callable[[Any], Any] | None:
    """Return what makes a value what its column takes; None: it is that already."""
    if type(table.c[name].type) is Integer:
        return _int4
    return table.c[name].type.dialect_impl(dialect).bind_processor(dialect)


def _int4(number: int | None) -> int | None:
    """Return *number*; raises OverflowError where psycopg would store another one."""
    if number is not None and not -(2**31) <= number < 2**31:
        msg = f"{number} is beyond what a column of 4 bytes can hold"
        raise OverflowError(msg)
    return number
