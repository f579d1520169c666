"""The upkeep of the tables of a schema on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Engine

from angzarr.adapters.sql.engine.schema import Schema
from angzarr.maintenance.schema_versions import Revision, TablesUpkeep


class SqlTablesUpkeep(TablesUpkeep):
    """Looks after the tables; nothing is changed that was not asked for."""

    def __init__(self, schema: Schema, engine: Engine, close: Callable[[], None]) -> None:
        self._schema = schema
        self._engine = engine
        self._close = close

    def revision(self) -> Revision:
        """Return the revision of the tables."""
        return self._schema.revision_of(self._engine)

    def upgrade(self) -> Revision:
        """Bring the tables to what this release needs."""
        return self._schema.upgrade(self._engine)

    def differences(self) -> Sequence[str]:
        """Return how the tables differ, in Alembic's words."""
        return self._schema.differences(self._engine)

    def close(self) -> None:
        """Close the pooled connections."""
        self._close()
