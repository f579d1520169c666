"""LedgerDatabase: the database that the ledger and all that belongs to it share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine

from angzarr.adapters.sql import brake_tables, job_tables
from angzarr.adapters.sql.engine import create_missing, in_transaction, reading
from angzarr.adapters.sql.ledger_tables import METADATA
from angzarr.errors import LedgerUnavailable, StoreUnavailable

_Answer = TypeVar("_Answer")

#: Modules whose tables must be known before any is created.
TABLES = (brake_tables, job_tables)


class LedgerDatabase:
    """Transactions on the ledger's tables, which are there when the first begins.

    Both verbs raise LedgerUnavailable when the database is away. Safe to use from threads.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ready = False

    def write(self, step: Callable[[Connection], _Answer]) -> _Answer:
        """Run *step*, which must be idempotent, in a transaction that may write."""
        self._prepare()
        return in_transaction(self._engine, step, away=LedgerUnavailable)

    def read(self, step: Callable[[Connection], _Answer]) -> _Answer:
        """Run *step* in a transaction that only reads; on SQLite it waits for no writer."""
        self._prepare()
        return in_transaction(reading(self._engine), step, away=LedgerUnavailable)

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()

    def _prepare(self) -> None:
        if self._ready:
            return
        try:
            create_missing(self._engine, METADATA)
        except StoreUnavailable as error:
            raise LedgerUnavailable(str(error)) from error
        self._ready = True
