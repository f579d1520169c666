"""Deletes facts that are older than a time, each only after it was exported (spec F1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Engine, RowMapping, delete, func, insert, select

from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import utc
from angzarr.adapters.sql.facts.rows import fact_of
from angzarr.adapters.sql.facts.tables import FACTS, fact_pruning, facts
from angzarr.facts.fact import Fact

#: Facts that are exported and deleted at once, so that no lock is held for long.
BATCH: Final = 1000

#: Takes facts that are to be deleted; what it raises keeps them.
Export = Callable[[Sequence[Fact]], object]


class FactPruner:
    """Prunes the table of facts at *engine*; the table is not made or upgraded for it."""

    def __init__(self, engine: Engine, *, batch: int = BATCH) -> None:
        self._database = SchemaDatabase(FACTS, engine, migrate=False)
        self._batch = batch

    def prune(self, before: datetime, export: Export) -> int:
        """Export and delete all facts before *before*; the number of deleted ones.

        Each batch is exported, oldest first, and deleted then. What breaks it off in between leaves
        facts that were exported and are still there; the next call exports them again.
        Raises ValueError for a time without a zone, Unavailable where the database is away, and
        what *export* raises: its batch stays.
        """
        if before.tzinfo is None:
            msg = f"{before.isoformat()} has no zone: write 2026-05-04T00:00:00Z, for example"
            raise ValueError(msg)
        until, deleted = utc(before), 0
        while rows := self._oldest(until, self._batch):
            deleted += self._let_go(until, rows, export)
        return deleted

    def prune_some(self, before: datetime, export: Export, limit: int) -> int:
        """Export and delete the oldest *limit* facts before *before*; the number of deleted ones.

        Several processes may do so at once: each fact is in the export of one at least. Raises
        Unavailable, and what *export* raises: then all of them stay.
        """
        until = utc(before)
        rows = self._oldest(until, limit)
        return self._let_go(until, rows, export) if rows else 0

    def count(self, before: datetime) -> int:
        """The number of facts before *before*, which `prune` would delete."""
        counted = select(func.count()).where(facts.c.timestamp < utc(before)).select_from(facts)
        return int(self._database.read(lambda connection: connection.scalar(counted)) or 0)

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()

    def _let_go(self, until: datetime, rows: Sequence[RowMapping], export: Export) -> int:
        export([fact_of(row) for row in rows])
        return self._delete(until, [row["position"] for row in rows])

    def _oldest(self, until: datetime, limit: int) -> Sequence[RowMapping]:
        wanted = (
            select(facts)
            .where(facts.c.timestamp < until)
            .order_by(facts.c.timestamp, facts.c.position)
            .limit(limit)
        )
        return self._database.read(lambda connection: connection.execute(wanted).mappings().all())

    def _delete(self, until: datetime, positions: Sequence[int]) -> int:
        """Delete facts in the transaction that says so; the database allows it in no other."""
        gone = delete(facts).where(facts.c.position.in_(positions))

        def step(connection: Connection) -> int:
            connection.execute(insert(fact_pruning).values(until=until))
            number: int = connection.execute(gone).rowcount
            connection.execute(delete(fact_pruning))
            return number

        return self._database.write(step)


class ExportedFacts:
    """Fulfils `Dated`: facts that may go by their age, each once *export* has it."""

    def __init__(self, pruner: FactPruner, export: Export) -> None:
        self._pruner = pruner
        self._export = export

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Export and delete up to *limit* facts before then; raises what `prune_some` does."""
        return self._pruner.prune_some(before, self._export, limit)
