"""Counts what is there, and says of what was closed without a time when that was.

In many small steps which may be repeated: workers go on, and who is interrupted begins again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

revision = "0004"
down_revision = "0003"

#: Groups, and entries, in one step.
_STEP = 500
_OPEN = ("escalated", "failed", "held", "retrying", "waiting")
_SAMPLE = ("handler_name", "domain", "event_type", "reason", "error_type", "failure_class")
_KIND = ("fingerprint", "domain", "handler_name", "event_type", "failure_class", "status")

_TIME = sa.DateTime(timezone=True)
_entries = sa.table(
    "ledger_entries",
    *map(sa.column, ("id", "error_message", "occurrences", "replays", *_SAMPLE)),
    *map(sa.column, ("fingerprint", "status")),
    *(sa.column(name, _TIME) for name in ("first_failed_at", "last_failed_at", "resolved_at")),
)
_groups = sa.table(
    "ledger_groups",
    *map(sa.column, ("fingerprint", "error_message", "latest_entry_id", *_SAMPLE)),
    *map(sa.column, ("entries", "open_entries", "occurrences", "status", "owner", "note")),
    *(sa.column(name, _TIME) for name in ("first_failed_at", "last_failed_at")),
    sa.column("revision"),
)
_counts = sa.table(
    "ledger_counts", *map(sa.column, ("key", *_KIND, "entries", "occurrences", "replays"))
)


def upgrade() -> None:
    """Fill groups and counts from the entries."""
    if op.get_bind().dialect.name != "postgresql":
        fill(op.get_bind())
        return
    with op.get_context().autocommit_block():
        fill(op.get_bind())


def fill(connection: sa.Connection) -> None:
    """Count everything and date what is closed."""
    last: str | None = None
    while names := _names_after(connection, last):
        _count(connection, names)
        last = names[-1]
    for status in ("archived", "compensated", "resolved", "skipped"):
        _date_closed(connection, status)


def _names_after(connection: sa.Connection, last: str | None) -> Sequence[str]:
    names = sa.select(_entries.c.fingerprint).distinct().order_by(_entries.c.fingerprint)
    if last is not None:
        names = names.where(_entries.c.fingerprint > last)
    return connection.scalars(names.limit(_STEP)).all()


def _count(connection: sa.Connection, names: Sequence[str]) -> None:
    kinds, sums = [_entries.c[name] for name in _KIND], sa.func.sum
    amounts = (sa.func.count(), sums(_entries.c.occurrences), sums(_entries.c.replays))
    wanted = sa.select(*kinds, *amounts, sa.func.min(_entries.c.first_failed_at))
    wanted = wanted.where(_entries.c.fingerprint.in_(names)).group_by(*kinds)
    found = connection.execute(wanted).all()
    groups = [group for one in names if (group := _group(connection, one, found))]
    _write(connection, _groups, "fingerprint", groups)
    _write(connection, _counts, "key", [_row(row) for row in found])


def _group(connection: sa.Connection, name: str, found: Sequence[Any]) -> dict[str, Any] | None:
    """The row of a group; None: workers go on, and its entries are gone meanwhile."""
    mine = [row for row in found if row[0] == name]
    latest = connection.execute(
        sa.select(_entries)
        .where(_entries.c.fingerprint == name)
        .order_by(_entries.c.last_failed_at.desc())
        .limit(1)
    ).one_or_none()
    if latest is None or not mine:
        return None
    return {
        **{column: latest._mapping[column] for column in _SAMPLE},  # noqa: SLF001 - public name
        "fingerprint": name,
        "error_message": latest.error_message[:2_000],
        "latest_entry_id": latest.id,
        "first_failed_at": min(row[9] for row in mine),
        "last_failed_at": latest.last_failed_at,
        "entries": sum(row[6] for row in mine),
        "open_entries": sum(row[6] for row in mine if row[5] in _OPEN),
        "occurrences": int(sum(row[7] for row in mine)),
        "status": "new",
        "owner": "",
        "note": "",
        "revision": 1,
    }


def _row(row: Any) -> dict[str, Any]:
    kind = [value or "" for value in row[:6]]
    key = hashlib.sha256("\x00".join(kind).encode()).hexdigest()
    amounts = dict(zip(("entries", "occurrences", "replays"), map(int, row[6:9]), strict=True))
    return {"key": key, **dict(zip(_KIND, kind, strict=True)), **amounts}


def _write(connection: sa.Connection, table: Any, key: str, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(table)
    counted = ("entries", "open_entries", "occurrences", "replays")
    changes = {name: insert.excluded[name] for name in counted if name in table.c}
    connection.execute(
        insert.on_conflict_do_update(index_elements=[table.c[key]], set_=changes), rows
    )


def _date_closed(connection: sa.Connection, status: str) -> None:
    """Let what was closed without a time have been closed when it last failed."""
    place = (_entries.c.last_failed_at, _entries.c.id)
    wanted = sa.select(*place, _entries.c.resolved_at).where(_entries.c.status == status)
    wanted, after = wanted.order_by(*place).limit(_STEP), None
    while True:
        page = wanted if after is None else wanted.where(sa.tuple_(*place) > after)
        rows = connection.execute(page).all()
        if not rows:
            return
        undated = [row.id for row in rows if row.resolved_at is None]
        closed = sa.update(_entries).where(_entries.c.id.in_(undated))
        if undated:
            connection.execute(closed.values(resolved_at=_entries.c.last_failed_at))
        after = (rows[-1].last_failed_at, rows[-1].id)
