"""The outbox of facts in SQL: a table beside the claims, to which their transactions write.

The table of facts may be in the same database. It is not written to in that transaction: a lock on
it (a migration, an index) would stop all deliveries, and a refused fact would fail its claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    Connection,
    Delete,
    Engine,
    Text,
    Update,
    bindparam,
    delete,
    func,
    insert,
    select,
)

from angzarr.adapters.sql.delivery.claim_tables import ensure_tables, fact_outbox
from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.facts.outbox import MOST_WAITING, OutboxDepth, WaitingFact

_places = fact_outbox.c.position
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


class SqlFactOutbox:
    """Facts in ``fact_outbox``, *most* of them once `trim` is called."""

    def __init__(self, engine: Engine, *, most: int = MOST_WAITING) -> None:
        self._engine = engine
        self._most = most

    def put(self, texts: Sequence[str], /) -> None:
        """Put *texts* last."""
        ensure_tables(self._engine)
        in_transaction(self._engine, lambda connection: _put(connection, texts))

    def read(self, most: int, /) -> list[WaitingFact]:
        """The oldest *most* facts."""
        wanted = select(_places, fact_outbox.c.text).order_by(_places).limit(most)
        ensure_tables(self._engine)
        rows = in_transaction(reading(self._engine), lambda one: one.execute(wanted).all())
        return [WaitingFact(str(place), text) for place, text in rows]

    def remove(self, places: Sequence[str], /) -> None:
        """Remove the facts at *places*."""
        numbers = [int(place) for place in places]
        for start in range(0, len(numbers), _REMOVED):
            gone = delete(fact_outbox).where(_places.in_(numbers[start : start + _REMOVED]))
            in_transaction(self._engine, partial(_execute, statement=gone))

    def trim(self) -> OutboxDepth:
        """Delete the oldest beyond the bound; how many are left.

        That is the span of their places, gaps included: counting would read all.
        """
        span = select(func.max(_places) - func.min(_places) + 1)
        ensure_tables(self._engine)
        waiting = in_transaction(reading(self._engine), lambda one: one.scalar(span)) or 0
        if waiting <= self._most:
            return OutboxDepth(waiting, 0)
        newest = select(func.max(_places)).scalar_subquery()
        old = delete(fact_outbox).where(_places <= newest - self._most)
        dropped = in_transaction(self._engine, partial(_execute, statement=old))
        return OutboxDepth(self._most, dropped)


def _put(connection: Connection, texts: Sequence[str]) -> None:
    if texts:
        connection.execute(_INSERT, [{"text": text} for text in texts])


def _execute(connection: Connection, statement: Delete) -> int:
    return connection.execute(statement).rowcount
