"""Read models of projections: in memory, and in the database of the lanes."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Column, Integer, MetaData, Table, Text, delete, insert, select

from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.adapters.sql.engine.engine import create_missing
from angzarr.adapters.sql.ordering.store import SqlLanes

_METADATA = MetaData()
#: A row for each effect: one that happened twice is there twice.
_effects = Table(
    "model_effects",
    _METADATA,
    Column("id", Integer, primary_key=True),
    Column("root", Text, nullable=False, index=True),
    Column("sequence", Integer, nullable=False),
)


class InMemory:
    """What was written, by aggregate."""

    def __init__(self):
        self.lanes = MemoryLanes()
        #: Of the roots, so that many worlds can share one database.
        self.prefix = "o"
        self._kept = defaultdict(list)

    def write(self, _connection, root, sequence):
        """Add to the read model; the last thing that a run does."""
        self._kept[root].append(sequence)

    def read(self, root):
        """Return the sequences that the read model of *root* is made of, as they were written."""
        return list(self._kept[root])

    def reset(self, handler):
        """Empty the read model and begin its lanes anew."""
        self.lanes.reset(handler, lambda _connection: self._kept.clear())


class InSql:
    """A table beside the lanes, written in the transaction that moves them."""

    def __init__(self, engine, prefix):
        create_missing(engine, _METADATA)
        self.lanes = SqlLanes(engine)
        self.prefix = prefix
        self._engine = engine

    def write(self, connection, root, sequence):
        """Add to the read model; without a connection, in a transaction of its own."""
        row = {"root": root, "sequence": sequence}
        if connection is not None:
            connection.execute(insert(_effects), row)
            return
        with self._engine.begin() as own:
            own.execute(insert(_effects), row)

    def read(self, root):
        """Return the sequences that the read model of *root* is made of, as they were written."""
        wanted = select(_effects.c.sequence).where(_effects.c.root == root)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted.order_by(_effects.c.id)).scalars())

    def reset(self, handler):
        """Empty the read model and begin its lanes anew, in one transaction."""
        self.lanes.reset(handler, lambda connection: connection.execute(delete(_effects)))
