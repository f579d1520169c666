"""How far a rebuild is: rows that each batch writes along with its effects."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    cast,
    column,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)

from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.event_store.tables import address_in, to_text
from angzarr.adapters.sql.ledger.column_types import UtcTime
from angzarr.adapters.sql.ordering.tables import name_key
from angzarr.adapters.sql.rebuild.space import Layout
from angzarr.aggregates.book import Address, Head
from angzarr.events.event import Event
from angzarr.projections.shadow_table import Failure, Plan, Progress

#: Stands for wherever the space lies: a connection says where that is.
SPACE: Final = "angzarr_space"

METADATA = MetaData(schema=SPACE)


def _key() -> tuple[Column[str], ...]:
    return tuple(Column(name, Text, primary_key=True) for name in ("domain", "root", "edition"))


#: One row. `fingerprint` is of what is rebuilt; the cursor's columns are NULL at the beginning.
angzarr_rebuild = Table(
    "angzarr_rebuild",
    METADATA,
    Column("fingerprint", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("domain", Text),
    Column("root", Text),
    Column("edition", Text),
    Column("next_sequence", Integer),
    # Whether the live read model is emptied, in a rebuild in place; NULL: that was not begun.
    Column("emptied", Boolean),
    # Whether it is for a comparison, and whether effects may be there without their places.
    Column("verifies", Boolean, nullable=False),
    Column("spoiled", Boolean, nullable=False),
)

angzarr_rebuild_places = Table(
    "angzarr_rebuild_places",
    METADATA,
    *_key(),
    Column("next_sequence", Integer, nullable=False),
)

#: What becomes the checkpoint; names and ids as in `projection_checkpoints`.
angzarr_rebuild_types = Table(
    "angzarr_rebuild_types",
    METADATA,
    Column("event_type", Text, primary_key=True),
    Column("last_event_id", Text, nullable=False),
    Column("last_event_type", Text, nullable=False),
    Column("events", BigInteger, nullable=False),
)

angzarr_rebuild_failures = Table(
    "angzarr_rebuild_failures",
    METADATA,
    *_key(),
    Column("sequence", Integer, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("error", Text, nullable=False),
)


_KEY: Final = Address._fields
_COLUMNS: Final = (*_KEY, "next_sequence")


def at_address(table: Table, address: Address) -> list[Any]:
    """The conditions under which a row of *table* is of *address*."""
    return [table.c[name] == value for name, value in zip(_KEY, address, strict=True)]


def places(
    connection: Connection, addresses: Iterable[Address], table: Table, *where: Any
) -> dict[Address, int]:
    """The next sequences that *table* has of *addresses*, in its rows that are *where*."""
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
    row = insert_into(connection, angzarr_rebuild_places).from_select(
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
    """*following* as a table: one parameter for however many there are."""
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


def fingerprint_of(plan: Plan, layouts: Sequence[Layout]) -> str:
    """A digest that differs where *plan* or its live tables do; its methods may change."""
    said = [plan.handler, sorted(plan.domains), plan.first, [one.shape for one in layouts]]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def start(connection: Connection, fingerprint: str, now: datetime, *, verifies: bool) -> None:
    """Write the row of a space that was just made."""
    row = {"fingerprint": fingerprint, "started_at": now, "events": 0}
    row |= {"verifies": verifies, "spoiled": False}
    connection.execute(insert(angzarr_rebuild), row)


def progress_of(connection: Connection, *, resumed: bool) -> tuple[str, Progress]:
    """The fingerprint of the space and how far it is."""
    row = connection.execute(select(angzarr_rebuild)).mappings().one()
    cursor = None if row["domain"] is None else Head(address_in(row), row["next_sequence"])
    left = tuple(failures(connection))
    found = Progress(row["started_at"], resumed, cursor, row["events"], left)
    said = {name: row[name] for name in ("verifies", "spoiled")}
    return row["fingerprint"], found._replace(**said)


def spoil(connection: Connection) -> None:
    """Write that effects may be there without their places."""
    connection.execute(update(angzarr_rebuild).values(spoiled=True))


def emptied(connection: Connection) -> bool | None:
    """True if the live read model is emptied; None: that was not begun."""
    return connection.scalar(select(angzarr_rebuild.c.emptied))


def note_emptied(connection: Connection, *, done: bool) -> None:
    """Write that the live read model is being emptied, or that it is *done*."""
    connection.execute(update(angzarr_rebuild).values(emptied=done))


def failures(connection: Connection) -> list[Failure]:
    """The events that failed and that their aggregates stayed at."""
    table = angzarr_rebuild_failures
    rows = connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
    return [
        Failure(
            address_in(row),
            row["sequence"],
            json.loads(row["event_id"]),
            json.loads(row["event_type"]),
            json.loads(row["error"]),
        )
        for row in rows
    ]


def fail(connection: Connection, failure: Failure) -> None:
    """Keep *failure* as the one of its aggregate."""
    forget(connection, angzarr_rebuild_failures, failure.address)
    texts = {name: to_text(getattr(failure, name)) for name in ("event_id", "event_type", "error")}
    row = {**failure.address._asdict(), "sequence": failure.sequence, **texts}
    connection.execute(insert(angzarr_rebuild_failures), row)


def forgive(connection: Connection) -> None:
    """Forget all failures."""
    connection.execute(delete(angzarr_rebuild_failures))


def note(connection: Connection, events: Sequence[Event], cursor: Head | None) -> None:
    """Write where the scan is, and count *events*."""
    values: dict[str, Any] = {"events": angzarr_rebuild.c.events + len(events)}
    if cursor is not None:
        values |= {**cursor.address._asdict(), "next_sequence": cursor.next_sequence}
    connection.execute(update(angzarr_rebuild).values(values))
    if not events:
        return
    counts, last = Counter(event.type for event in events), {one.type: one for one in events}
    row = insert_into(connection, angzarr_rebuild_types)
    new, here = row.excluded, angzarr_rebuild_types.c
    added = {"last_event_id": new.last_event_id, "events": here.events + new.events}
    connection.execute(
        row.on_conflict_do_update(index_elements=[here.event_type], set_=added),
        [
            {
                "event_type": name_key(kind),
                "last_event_id": to_text(last[kind].id),
                "last_event_type": to_text(kind),
                "events": count,
            }
            for kind, count in sorted(counts.items())
        ],
    )
