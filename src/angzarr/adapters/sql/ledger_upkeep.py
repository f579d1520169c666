"""The upkeep of a ledger on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from angzarr.adapters.sql import ledger_upgrade
from angzarr.adapters.sql.engine import patient
from angzarr.adapters.sql.ledger_database import LedgerDatabase
from angzarr.adapters.sql.ledger_recount import recount
from angzarr.analysis.upkeep import LedgerUpkeep, Recounted, Revision


class SqlUpkeep(LedgerUpkeep):
    """Looks after the tables; nothing is changed that was not asked for."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._engine = database.engine
        self._close = database.close

    def revision(self) -> Revision:
        """Return the revision of the tables."""
        return ledger_upgrade.revision_of(self._engine)

    def upgrade(self) -> Revision:
        """Bring the tables to what this release needs."""
        return ledger_upgrade.upgrade(self._engine)

    def differences(self) -> Sequence[str]:
        """Return how the tables differ, in Alembic's words."""
        return ledger_upgrade.differences(self._engine)

    def recount(self, *, mend: bool) -> Iterator[Recounted]:
        """Compare and mend; refuses tables that are not those of this release."""
        ledger_upgrade.make_ready(self._engine, migrate=False)
        with patient(self._engine) as slow:
            yield from recount(slow, mend=mend)

    def close(self) -> None:
        """Close the pooled connections."""
        self._close()
