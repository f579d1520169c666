"""The outbox of facts in SQL: a table beside the claims, to which their transactions write.

The table of facts may be in the same database. It is not written to in that transaction: a lock on
it (a migration, an index) would stop all deliveries, and a refused fact would fail its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    Connection,
    Delete,
    Engine,
    Insert,
    Select,
    Table,
    Text,
    Update,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
)

from angzarr.adapters.sql.delivery.claim_tables import ensure_tables, fact_outbox
from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.facts.outbox import MOST_WAITING, OutboxDepth, WaitingFact

_INSERT: Final = insert(fact_outbox)
#: Places that one statement removes.
_REMOVED: Final = 1000


class PutWith:
    """*write* together with the facts that it makes true: on PostgreSQL they are one statement."""

    def __init__(self, engine: Engine, write: Update) -> None:
        self._write, self._at_once = write, None
        if engine.dialect.name == "postgresql":
            texts = func.unnest(bindparam("texts", type_=ARRAY(Text))).column_valued()
            kept = _INSERT.from_select(["text"], select(texts)).cte("kept")
            self._at_once = write.add_cte(kept)

    def __call__(
        self, connection: Connection, values: Mapping[str, Any], texts: Sequence[str]
    ) -> None:
        """Write *values*, and put *texts* last."""
        if self._at_once is not None:
            connection.execute(self._at_once, {**values, "texts": list(texts)})
            return
        connection.execute(self._write, values)
        _put(connection, texts)


class PutIf:
    """Facts that are put if *held* finds a row, which it locks: one statement on PostgreSQL."""

    def __init__(self, engine: Engine, held: Select[Any]) -> None:
        self._held, self._at_once = held, None
        if engine.dialect.name == "postgresql":
            row = held.cte("held")
            texts = func.unnest(bindparam("texts", type_=ARRAY(Text))).column_valued()
            found = select(texts).where(exists(select(row)))
            kept = _INSERT.from_select(["text"], found).cte("kept")
            self._at_once = select(row).add_cte(kept)

    def __call__(
        self, connection: Connection, values: Mapping[str, Any], texts: Sequence[str]
    ) -> bool:
        """True if *held* finds a row for *values*; *texts* are put last then."""
        if texts and self._at_once is not None:
            asked = {**values, "texts": list(texts)}
            return connection.execute(self._at_once, asked).first() is not None
        found = connection.execute(self._held, values).first() is not None
        if found:
            _put(connection, texts)
        return found


class SqlFactOutbox:
    """Facts in *table*, *most* of them once `trim` is called.

    *prepare* makes the table ready; by default it is the one beside the claims.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        most: int = MOST_WAITING,
        table: Table = fact_outbox,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._engine = engine
        self._most = most
        self._table = table
        self._places, self._last = table.c.position, insert(table)
        self._prepare = prepare or partial(ensure_tables, engine)

    def put(self, texts: Sequence[str], /) -> None:
        """Put *texts* last."""
        self._prepare()
        in_transaction(self._engine, lambda connection: _put(connection, texts, self._last))

    def read(self, most: int, /) -> list[WaitingFact]:
        """The oldest *most* facts."""
        wanted = select(self._places, self._table.c.text).order_by(self._places).limit(most)
        self._prepare()
        rows = in_transaction(reading(self._engine), lambda one: one.execute(wanted).all())
        return [WaitingFact(str(place), text) for place, text in rows]

    def remove(self, places: Sequence[str], /) -> None:
        """Remove the facts at *places*."""
        numbers = [int(place) for place in places]
        for start in range(0, len(numbers), _REMOVED):
            some = self._places.in_(numbers[start : start + _REMOVED])
            gone = delete(self._table).where(some)
            in_transaction(self._engine, partial(_execute, statement=gone))

    def trim(self) -> OutboxDepth:
        """Delete the oldest beyond the bound; how many are left.

        That is the span of their places, gaps included: counting would read all.
        """
        span = select(func.max(self._places) - func.min(self._places) + 1)
        self._prepare()
        waiting = in_transaction(reading(self._engine), lambda one: one.scalar(span)) or 0
        if waiting <= self._most:
            return OutboxDepth(waiting, 0)
        newest = select(func.max(self._places)).scalar_subquery()
        old = delete(self._table).where(self._places <= newest - self._most)
        dropped = in_transaction(self._engine, partial(_execute, statement=old))
        return OutboxDepth(self._most, dropped)


def _put(connection: Connection, texts: Sequence[str], last: Insert = _INSERT) -> None:
    if texts:
        connection.execute(last, [{"text": text} for text in texts])


def _execute(connection: Connection, statement: Delete) -> int:
    return connection.execute(statement).rowcount
