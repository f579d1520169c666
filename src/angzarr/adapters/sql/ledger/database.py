"""LedgerDatabase: the database that the ledger and all that belongs to it share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine

from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.adapters.sql.engine.schema import Readiness
from angzarr.adapters.sql.engine.shared_engine import ENGINES
from angzarr.adapters.sql.ledger.schema import LEDGER
from angzarr.errors import LedgerUnavailable

_Answer = TypeVar("_Answer")


class LedgerDatabase:
    """Transactions on the ledger's tables, which are made or upgraded when the first begins.

    Both verbs raise LedgerUnavailable when the database is away. With *migrate* False tables are
    left as they are, and those that are behind count as away. Safe to use from threads.
    """

    def __init__(
        self, engine: Engine, *, migrate: bool = True, close: Callable[[], None] | None = None
    ) -> None:
        self.engine = engine
        self._prepare = Readiness(LEDGER, engine, migrate=migrate)
        self._close = close or engine.dispose

    def write(self, step: Callable[[Connection], _Answer], *, once: bool = False) -> _Answer:
        """Run *step*, which must be idempotent, in a transaction that may write.

        *once*: it tells whether it was done, and would deny it where it runs a second time.
        """
        self._prepare()
        return in_transaction(self.engine, step, away=LedgerUnavailable, once=once)

    def read(self, step: Callable[[Connection], _Answer]) -> _Answer:
        """Run *step* in a transaction that only reads; on SQLite it waits for no writer."""
        self._prepare()
        return in_transaction(reading(self.engine), step, away=LedgerUnavailable)

    def close(self) -> None:
        """Let the engine go: its connections are closed unless others use it too."""
        self._close()


def open_database(url: str, *, migrate: bool = True) -> LedgerDatabase:
    """Return the database at *url*, which shares its connections with others of this process."""
    lent = ENGINES.borrow(url)
    return LedgerDatabase(lent.engine, migrate=migrate, close=lent.close)
