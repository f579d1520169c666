"""How other events fare, from the ledger's tables: one statement, each part served by an index."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, literal, select, union_all

from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.tables import LONGEST_NAME, ledger_entries
from angzarr.analysis.ledger.counts import MOST, PeerReport, Peers, PeerStats
from angzarr.analysis.ledger.entry import BY_REPLAY, Status

_columns = ledger_entries.c
_KINDS = {"handler": _columns.handler_name, "group": _columns.fingerprint}


class SqlPeers(Peers):
    """Reads the ledger's tables; safe to use from threads."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def fared(
        self, handlers: Collection[str], groups: Collection[str], since: datetime
    ) -> PeerReport:
        """Look at the last entries of each."""
        asked = [("handler", name) for name in handlers] + [("group", name) for name in groups]
        if not asked:
            return PeerReport()
        wanted = union_all(*(_part(*one, number, since) for number, one in enumerate(asked)))

        def read(connection: Connection) -> dict[tuple[str, str], PeerStats]:
            return {
                asked[row.number]: PeerStats(
                    events=row.events, failed=int(row.failed or 0), handled=int(row.handled or 0)
                )
                for row in connection.execute(wanted)
            }

        found = self._database.read(read)
        return PeerReport(
            handlers={name: fared for (kind, name), fared in found.items() if kind == "handler"},
            groups={name: fared for (kind, name), fared in found.items() if kind == "group"},
        )

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


def _part(kind: str, name: str, number: int, since: datetime) -> Select[int, int, Any, Any]:
    """Return the question after one name, answered from the entries that failed last."""
    last = (
        select(_columns.status, _columns.last_failed_at, _columns.resolved_by, _columns.resolved_at)
        .where(_KINDS[kind] == name[:LONGEST_NAME])
        .order_by(_columns.last_failed_at.desc(), _columns.id.desc())
        .limit(MOST)
        .subquery()
    )
    resolved = last.c.status == Status.RESOLVED.value
    failed = and_(last.c.last_failed_at >= since, ~resolved)
    by_replay = last.c.resolved_by.startswith(BY_REPLAY, autoescape=True)
    handled = and_(resolved, by_replay, last.c.resolved_at >= since)
    return select(
        literal(number).label("number"),
        func.count().label("events"),
        func.sum(case((failed, 1), else_=0)).label("failed"),
        func.sum(case((handled, 1), else_=0)).label("handled"),
    ).select_from(last)
