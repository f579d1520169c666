"""The outbox of the facts of acts, beside the ledger: an act's transaction writes its fact.

So a kill leaves both or neither. A relay moves facts on, and removes each by its place: numbers of
transactions that end in another order than they began are no matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, insert

from angzarr.adapters.sql.delivery.fact_outbox import SqlFactOutbox
from angzarr.adapters.sql.ledger.schema import ledger_fact_outbox
from angzarr.facts.fact import Fact
from angzarr.facts.outbox import MOST_WAITING
from angzarr.facts.outbox_log import lines_of

if TYPE_CHECKING:  # it counts, and counts put facts here
    from angzarr.adapters.sql.ledger.database import LedgerDatabase


def put_facts(connection: Connection, facts: Sequence[Fact]) -> None:
    """Put *facts* last, in the transaction of *connection*."""
    lines = lines_of(facts)
    if lines:
        connection.execute(insert(ledger_fact_outbox), [{"text": line} for line in lines])


class LedgerFactOutbox(SqlFactOutbox):
    """Facts of acts that wait in the ledger's database, *most* of them once `trim` is called."""

    def __init__(self, database: LedgerDatabase, *, most: int = MOST_WAITING) -> None:
        super().__init__(
            database.engine,
            most=most,
            table=ledger_fact_outbox,
            prepare=database.prepare,
        )
        self._database = database

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()
