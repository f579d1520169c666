"""A ledger with very many entries, written in bulk: what filing would leave after years.

Some handlers, tenants and statuses are nearly everything and some are next to nothing, and what is
rare is also old: that is where a page could take long.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from angzarr.adapters.sql.engine.engine import build_engine, patient
from angzarr.adapters.sql.engine.statements import insert_rows
from angzarr.adapters.sql.ledger.schema import LEDGER
from angzarr.adapters.sql.ledger.tables import (
    entry_row,
    ledger_entries,
    ledger_history,
    ledger_letters,
)
from angzarr.adapters.sql.migrations.ledger import r0004_counted
from angzarr.analysis.ledger.entry import Entry, FailureClass, Status
from harness import servers

NOW = datetime(2026, 11, 1, tzinfo=UTC)
GROUPS = 2_000
_HANDLERS, _DOMAINS, _TENANTS = 60, 12, 500
_BODY = b"\x0a" * 600  # of a letter that nobody opens here
_STEP = 20_000
#: How much of all is in each status and class.
_SHARES = (
    (Status.RESOLVED, FailureClass.TRANSIENT_ONGOING, 700),
    (Status.HELD, FailureClass.CODE_DEFECT, 150),
    (Status.SKIPPED, FailureClass.BUSINESS_REJECTION, 100),
    (Status.WAITING, FailureClass.TRANSIENT_ONGOING, 30),
    (Status.ARCHIVED, FailureClass.DATA_CORRUPTION, 15),
    (Status.FAILED, None, 4),
    (Status.ESCALATED, FailureClass.UNKNOWN, 1),
)
_BOUNDS = tuple(accumulate(share for *_, share in _SHARES))


@dataclass(frozen=True, slots=True)
class Filled:
    """A database with entries."""

    engine: Engine
    told: str


@contextmanager
def postgresql(entries: int) -> Iterator[Filled]:
    """Lend a PostgreSQL database with so many entries."""
    with servers.database() as url:
        engine = build_engine(url)
        try:
            fill(engine, entries)
            with engine.connect() as connection:
                version = connection.scalar(text("SHOW server_version"))
            yield Filled(engine, f"PostgreSQL {str(version).split()[0]}")
        finally:
            engine.dispose()


@contextmanager
def sqlite(entries: int) -> Iterator[Filled]:
    """Lend an SQLite file with so many entries."""
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        engine = build_engine(f"sqlite:///{Path(folder) / 'ledger.db'}")
        try:
            fill(engine, entries)
            yield Filled(engine, f"SQLite {sqlite3.sqlite_version}")
        finally:
            engine.dispose()


def fill(engine: Engine, entries: int) -> None:
    """Make the tables and write so many entries, each with letter and history; count them."""
    LEDGER.make_ready(engine)
    made = iter(_entries(entries))
    with patient(engine) as slow, slow.connect() as connection:
        while some := list(islice(made, _STEP)):
            with connection.begin():
                insert_rows(connection, ledger_entries, [entry_row(one) for one in some])
                insert_rows(connection, ledger_letters, [_letter(one) for one in some])
                insert_rows(connection, ledger_history, [_line(one) for one in some])
        with connection.begin():
            r0004_counted.fill(connection)  # as an upgrade counts them
    if engine.dialect.name == "postgresql":
        with patient(engine) as slow, slow.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("VACUUM ANALYZE")


def _entries(count: int) -> Iterator[Entry]:
    chance = random.Random(7)
    for number in range(count):
        at = NOW - timedelta(days=365) * ((count - number) / count)
        group = int(GROUPS * chance.random() ** 3)  # a few groups are most of it
        tenant = int(_TENANTS * chance.random() ** 3)
        status, kind, _ = _SHARES[bisect(_BOUNDS, chance.randrange(_BOUNDS[-1]))]
        if group % 97 == 0 and number > count // 1000:
            status, kind = Status.RESOLVED, FailureClass.TRANSIENT_ONGOING  # once held, long ago
        yield _entry(number, at, group, tenant, status, kind)


def _entry(  # noqa: PLR0917 - columns of one row
    number: int, at: datetime, group: int, tenant: int, status: Status, kind: FailureClass | None
) -> Entry:
    closed = status in {Status.RESOLVED, Status.SKIPPED, Status.ARCHIVED}
    return Entry(
        id=hashlib.sha256(f"{number}".encode()).hexdigest(),
        handler_name=f"shop.handler_{group % _HANDLERS}",
        event_id=f"event-{number}",
        event_type=f"Event{group % 150}",
        domain=f"domain-{group % _HANDLERS % _DOMAINS}",
        tenant_id=f"tenant-{tenant}",
        correlation_id=f"correlation-{number}",
        reason="exhausted",
        category="transient",
        error_type="ConnectionError",
        error_message="the CRM did not answer within 3 s, as often before",
        fingerprint=hashlib.sha256(f"g{group}".encode()).hexdigest()[:16],
        worker="host-1",
        version="1.4.2",
        first_failed_at=at - timedelta(minutes=5),
        last_failed_at=at,
        letter_id=hashlib.sha256(f"l{number}".encode()).hexdigest(),
        status=status,
        failure_class=kind,
        evidence="the error is transient, replay 1 of 3",
        wake_at=at + timedelta(days=900) if status is Status.WAITING else None,
        resolved_by="replay 1 (handled)" if closed else "",
        resolved_at=at + timedelta(hours=1) if closed else None,
    )


def _letter(entry: Entry) -> dict[str, Any]:
    return {
        "entry_id": entry.id, "body": _BODY, "content_type": "application/protobuf",
        "problem": None, "domain": entry.domain, "received_at": entry.last_failed_at,
    }  # fmt: skip


def _line(entry: Entry) -> dict[str, Any]:
    return {
        "entry_id": entry.id, "at": entry.last_failed_at, "who": "host-1", "what": "failed",
        "detail": "5 attempts used", "letter_id": entry.letter_id, "replay": 0,
    }  # fmt: skip
