"""Facts in SQL: spooled in memory, written in batches by one thread a process (spec F1).

Rows are only ever added. Every fact becomes a row that both databases take. Times are UTC.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    RowMapping,
    Select,
    Table,
    Text,
    select,
)
from sqlalchemy.exc import ProgrammingError

from angzarr.adapters.sql.delivery.fact_spool import BATCH, MOST, FactSpool
from angzarr.adapters.sql.engine.engine import build_engine, create_missing, in_transaction, reading
from angzarr.adapters.sql.engine.statements import insert_into, utc
from angzarr.errors import Unavailable
from angzarr.facts import Fact

#: Longest text in a column of its own, in characters: PostgreSQL refuses index entries beyond
#: 2,700 bytes, and some of these texts come from foreign headers.
MAX_TEXT = 500
#: Deeper data is written as text; also the end of data that contains itself.
MAX_DEPTH = 20

_TEXTS = (
    "type", "subtype", "tenant_id", "entity_id", "tool_id", "asset_id", "config_id",
    "config_version",
)  # fmt: skip


def row_of(fact: Fact) -> dict[str, Any]:
    """*fact* as a row: long texts cut, times in UTC, data as JSON."""
    return {
        "id": key_of(fact.id),
        "timestamp": utc(fact.at),
        "data": _json(fact.data, MAX_DEPTH),
        **{name: _column(getattr(fact, name)) for name in _TEXTS},
    }


def fact_of(row: RowMapping) -> Fact:
    """The fact that *row* holds."""
    texts = {name: row[name] for name in _TEXTS}
    return Fact(id=row["id"], at=utc(row["timestamp"]), data=row["data"], **texts)


def key_of(given: str) -> str:
    """A short id as it is, a long one as its digest: cut ids could meet."""
    text = _text(given)
    if len(text) <= MAX_TEXT:
        return text
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def _column(value: str | None) -> str | None:
    return None if value is None else _text(value)[:MAX_TEXT]


def _text(value: str) -> str:
    """*value* without what PostgreSQL or UTF-8 cannot hold: NUL and lone surrogates."""
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _json(value: Any, depth: int) -> Any:
    """*value* as pure JSON; what has no JSON form (money, times, NaN) is its text."""
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            return _text(value)
        case Mapping() if depth:
            return {_text(str(key)): _json(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [_json(item, depth - 1) for item in value]
        case _:
            return _text(str(value))


METADATA = MetaData()

facts = Table(
    "facts",
    METADATA,
    # The order of arrival in this database; SQLite counts only an INTEGER key by itself.
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("subtype", Text, nullable=False),
    Column("timestamp", DateTime(timezone=True), nullable=False, index=True),
    Column("tenant_id", Text),
    Column("entity_id", Text, index=True),
    Column("tool_id", Text, index=True),
    Column("asset_id", Text),
    Column("config_id", Text),
    Column("config_version", Text),
    Column("data", JSON, nullable=False),
    Index("ix_facts_kind", "type", "subtype"),
)


def create_facts_table(engine: Engine) -> None:
    """Create the table if it is missing; any number of processes may do so at once."""
    create_missing(engine, METADATA)


_log = logging.getLogger("angzarr.facts")


class SqlFactLog:
    """Facts in the table ``facts``, which is made when the first one is written.

    *most* facts are kept in memory while the database is away; see FactSpool for what happens
    beyond. A worker that is killed loses what waited, LINGER's worth on a healthy database.
    """

    def __init__(self, database: Engine | str, *, most: int = MOST, batch: int = BATCH) -> None:
        self._engine = build_engine(database) if isinstance(database, str) else database
        new = insert_into(self._engine, facts)
        self._insert = new.on_conflict_do_nothing(index_elements=["id"])
        self._spool = FactSpool(self._write, most=most, batch=batch)
        self._ready = False

    @property
    def dropped(self) -> int:
        """How many facts this process lost to a full spool or to an end without a database."""
        return self._spool.dropped

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:  # noqa: ARG002 - spooled at once
        """Spool *facts*; they are written soon."""
        self._spool.append(facts)

    def close(self) -> None:
        """Write what is spooled, giving up after two seconds."""
        self._spool.close()

    def read(
        self,
        *,
        type: str | None = None,
        subtype: str | None = None,
        tool_id: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Fact]:
        """At most *limit* facts in the order in which they were written.

        *after* is the id of the last fact already seen; raises LookupError for an unknown one.
        Raises Unavailable if the database is away.
        """
        equal = {"type": type, "subtype": subtype, "tool_id": tool_id}
        wanted = _wanted(equal, since).order_by(facts.c.position).limit(limit)
        self._prepare()
        if after is not None:
            wanted = wanted.where(facts.c.position > self._position(after))
        rows = in_transaction(
            reading(self._engine), lambda connection: connection.execute(wanted).mappings().all()
        )
        return [fact_of(row) for row in rows]

    def _position(self, id: str) -> int:
        found = select(facts.c.position).where(facts.c.id == key_of(id))
        position = in_transaction(reading(self._engine), lambda c: c.execute(found).scalar())
        if position is None:
            msg = f"no fact has the id {id!r}"
            raise LookupError(msg)
        return int(position)

    def _prepare(self) -> None:
        if not self._ready:
            create_facts_table(self._engine)
            self._ready = True

    def _write(self, facts: Sequence[Fact]) -> None:
        """Write *facts*; raises if the database, not a fact, is at fault."""
        self._prepare()
        rows = _rows(facts)
        try:
            self._run(rows)
        except (Unavailable, ProgrammingError):
            self._ready = False  # perhaps the table is gone
            raise
        except Exception:  # noqa: BLE001 - one bad row must not hold up all others
            self._write_each(rows)

    def _write_each(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            try:
                self._run([row])
            except (Unavailable, ProgrammingError):
                raise
            except Exception:  # noqa: BLE001 - no try will make the database take it
                _log.exception("fact_refused: %s", row["id"])

    def _run(self, rows: Sequence[dict[str, Any]]) -> None:
        if rows:  # without any, SQLAlchemy would insert one row of defaults
            in_transaction(self._engine, lambda connection: connection.execute(self._insert, rows))


def _rows(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    rows = []
    for fact in facts:
        try:
            rows.append(row_of(fact))
        except Exception:  # noqa: BLE001 - its data may do anything when read
            _log.exception("fact_refused: it cannot be written as a row")
    return rows


def _wanted(equal: Mapping[str, str | None], since: datetime | None) -> Select[Any]:
    wanted = select(facts)
    for name, value in equal.items():
        if value is not None:
            wanted = wanted.where(facts.c[name] == value)
    return wanted if since is None else wanted.where(facts.c.timestamp >= utc(since))
