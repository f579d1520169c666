"""The schema of the ledger and of all that belongs to it."""

from __future__ import annotations

from typing import Final

from angzarr.adapters.sql.engine.schema import Schema
from angzarr.adapters.sql.ledger import alert_tables, job_tables, write_tables
from angzarr.adapters.sql.ledger import write_tables as brake_tables
from angzarr.adapters.sql.ledger.tables import HEAD, METADATA, ledger_entries
from angzarr.errors import LedgerUnavailable

#: Modules whose tables must be known before any is created.
TABLES: Final = (alert_tables, brake_tables, job_tables, write_tables)

LEDGER: Final = Schema(
    name="ledger",
    called="the ledger",
    metadata=METADATA,
    head=HEAD,
    first=(ledger_entries,),
    cure="angzarr ledger upgrade",
    setting="ledger_migrate",
    waiting="letters",
    away=LedgerUnavailable,
)
