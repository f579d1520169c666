"""A ledger in SQL with its groups, as one object: what the suites ask for."""

from __future__ import annotations

from angzarr.adapters.sql.ledger import SqlLedger
from angzarr.adapters.sql.ledger_groups import SqlGroups


class Both(SqlLedger, SqlGroups):
    """Both on one database."""
