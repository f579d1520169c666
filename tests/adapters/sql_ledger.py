"""A ledger in SQL with its groups, as one object: what the suites ask for."""

from __future__ import annotations

from angzarr.adapters.sql.ledger.groups import SqlGroups
from angzarr.adapters.sql.ledger.store import SqlLedger


class Both(SqlLedger, SqlGroups):
    """Both on one database."""
