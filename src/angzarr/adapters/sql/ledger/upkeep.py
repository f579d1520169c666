"""The upkeep of a ledger on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

from angzarr.adapters.sql.engine.engine import patient
from angzarr.adapters.sql.engine.schema_upkeep import SqlTablesUpkeep
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.recount import recount
from angzarr.adapters.sql.ledger.schema import LEDGER
from angzarr.analysis.ledger.upkeep import LedgerUpkeep, Recounted


class SqlUpkeep(SqlTablesUpkeep, LedgerUpkeep):
    """Looks after the ledger's tables and counts; nothing is changed that was not asked for."""

    def __init__(self, database: LedgerDatabase) -> None:
        super().__init__(LEDGER, database.engine, database.close)

    def recount(self, *, mend: bool) -> Iterator[Recounted]:
        """Compare and mend; refuses tables that are not those of this release."""
        LEDGER.make_ready(self._engine, migrate=False)
        with patient(self._engine) as slow:
            yield from recount(slow, mend=mend)
