"""Examination: what a database tells of itself, for the doctor; only reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, inspect, text

from angzarr.adapters.sql.engine.engine import (
    address,
    build_engine,
    in_transaction,
    parsed_url,
    reading,
)
from angzarr.doctor.database_rules import DatabaseSeen, TablesSeen

_SETTINGS: Final = ("synchronous_commit", "fsync", "full_page_writes", "max_connections")


def name_of(url: str) -> str:
    """The name of the database at *url* in findings; raises ConfigurationError for none."""
    parsed = parsed_url(url)
    if parsed.get_backend_name() != "sqlite":
        return f"PostgreSQL at {address(parsed).partition('://')[2]}"
    file = parsed.database or ""  # never empty: `parsed_url` refuses databases in memory
    return f"SQLite at {file if file.startswith('file:') else Path(file).absolute()}"


def examine(
    url: str,
    roles: Sequence[str],
    *,
    timeout: timedelta,
    tables: Sequence[TablesSeen] = (),
    workers: int | None = None,
) -> DatabaseSeen:
    """The answers of the database at *url*; raises StoreUnavailable if it is away.

    *workers* is how many workers share it, where that is known.
    """
    name, engine = name_of(url), build_engine(url, timeout=timeout, pool_size=1)
    if engine.dialect.name == "sqlite":
        engine.dispose()
        return DatabaseSeen(at=name, roles=tuple(roles), kind="sqlite", tables=tuple(tables))
    try:
        settings, used, skew = in_transaction(reading(engine), _told)
    finally:
        engine.dispose()
    return DatabaseSeen(
        at=name,
        roles=tuple(roles),
        settings=settings,
        used=used,
        wanted=None if workers is None else workers * _POOL,
        skew=skew,
        tables=tuple(tables),
    )


def has_table(url: str, name: str) -> bool:
    """True if the database at *url* has a table; raises StoreUnavailable if it is away."""
    engine = build_engine(url, pool_size=1)
    try:
        return in_transaction(reading(engine), lambda one: inspect(one).has_table(name))
    finally:
        engine.dispose()


#: Connections that a process of ours opens at most, of one pool (`build_engine`).
_POOL: Final = 15


def _told(connection: Connection) -> tuple[Mapping[str, str], int | None, timedelta]:
    names = ", ".join(f"current_setting('{name}')" for name in _SETTINGS)
    before = time.time()
    row: Any = connection.execute(text(f"SELECT clock_timestamp(), {names}")).one()
    after = time.time()
    # pg_stat_activity has the server's own processes too, which no limit counts
    used = connection.scalar(text("SELECT sum(numbackends) FROM pg_stat_database"))
    settings = dict(zip(_SETTINGS, map(str, row[1:]), strict=True))
    return settings, None if used is None else int(used), _skew(before, row[0].timestamp(), after)


def _skew(before: float, there: float, after: float) -> timedelta:
    """The time by which a clock is ahead; zero where the way to it may explain it."""
    if before <= there <= after:
        return timedelta(0)
    return timedelta(seconds=there - (after if there > after else before))
