"""Bodies that letters of the ledger held, until their holds are ended in the register (spec F4).

`letter_holds` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, delete, select

from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import ledger_released_payloads
from angzarr.analysis.ledger.payload_upkeep import ReleasedHold, ReleasedPayloads
from angzarr.payloads.holders import PayloadHold

_released: Final = ledger_released_payloads.c


class SqlReleasedPayloads(ReleasedPayloads):
    """Rows of ``ledger_released_payloads``, in the ledger's database; safe to use from threads."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def read(self, limit: int, /) -> list[ReleasedHold]:
        """The oldest *limit* of them."""
        wanted = select(ledger_released_payloads).order_by(_released.number).limit(limit)
        rows = self._database.read(lambda connection: connection.execute(wanted).all())
        return [
            ReleasedHold(
                number=row.number,
                hold=PayloadHold(row.uri, row.holder),
                next=PayloadHold(row.uri, row.next_holder) if row.next_holder else None,
            )
            for row in rows
        ]

    def forget(self, numbers: Sequence[int], /) -> None:
        """Delete these rows."""
        gone = delete(ledger_released_payloads).where(_released.number.in_(numbers))
        if numbers:
            self._database.write(partial(_execute, statement=gone))

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


def _execute(connection: Connection, statement: Any) -> None:
    connection.execute(statement)
