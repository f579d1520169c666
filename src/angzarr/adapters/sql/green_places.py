"""How far each aggregate is, for a rebuild: asked for and written for many at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Table,
    Text,
    and_,
    cast,
    column,
    delete,
    func,
    literal,
    literal_column,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.green_tables import angzarr_rebuild_places
from angzarr.aggregates.book import Address

_KEY: Final = Address._fields
_COLUMNS: Final = (*_KEY, "next_sequence")


def insert_of(connection: Connection) -> Any:
    """Return the INSERT of the database's own dialect, which takes ON CONFLICT."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert


def at_address(table: Table, address: Address) -> list[Any]:
    """Return the conditions under which a row of *table* is of *address*."""
    return [table.c[name] == value for name, value in zip(_KEY, address, strict=True)]


def places(
    connection: Connection, addresses: Iterable[Address], table: Table, *where: Any
) -> dict[Address, int]:
    """Return the next sequences that *table* has of *addresses*, in its rows that are *where*."""
    wanted = dict.fromkeys(addresses, 0)
    if not wanted:
        return {}
    asked = place_rows(connection, wanted)
    # Not a join: PostgreSQL would keep to the plan that it made of one while the table was empty.
    here = and_(*(table.c[name] == asked.c[name] for name in _KEY), *where)
    found = select(table.c.next_sequence).where(here).scalar_subquery()
    rows = connection.execute(select(*(asked.c[name] for name in _KEY), found))
    return {Address(*key): place for *key, place in rows if place is not None}


def put_places(connection: Connection, following: Mapping[Address, int]) -> None:
    """Write where aggregates of a green space are."""
    if not following:
        return
    given = place_rows(connection, following)
    row = insert_of(connection)(angzarr_rebuild_places).from_select(
        list(_COLUMNS), select(*(given.c[name] for name in _COLUMNS)).where(literal(1) == 1)
    )
    connection.execute(
        row.on_conflict_do_update(
            index_elements=list(_KEY), set_={"next_sequence": row.excluded.next_sequence}
        )
    )


def forget(connection: Connection, table: Table, address: Address) -> None:
    """Delete the row of *address*."""
    connection.execute(delete(table).where(*at_address(table, address)))


def place_rows(connection: Connection, following: Mapping[Address, int]) -> FromClause:
    """Return *following* as a table: one parameter for however many there are."""
    rows = json.dumps([(*address, place) for address, place in following.items()])
    if connection.dialect.name == "postgresql":
        given = cast(literal(rows, Text), JSON)
        value = func.json_array_elements(given).table_valued(column("value", JSON)).c.value
        texts = [value.op("->>")(literal_column(str(at))) for at in range(len(_COLUMNS))]
        parts: list[ColumnElement[Any]] = [*texts[:-1], cast(texts[-1], Integer)]
    else:
        value = func.json_each(rows).table_valued("value").c.value
        parts = [func.json_extract(value, f"$[{at}]") for at in range(len(_COLUMNS))]
    named = [part.label(name) for part, name in zip(parts, _COLUMNS, strict=True)]
    return select(*named).subquery("given")
