"""Advisory locks of PostgreSQL, asked for again and again: no statement waits for one.

A statement that waits ends at its time-out, and is one that an index which is built meanwhile
waits for.

The database's time as SQL, so that no lease hangs on a worker's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, DateTime, Engine, Float, bindparam, func, select

from angzarr.adapters.sql.engine.engine import in_transaction, reading

#: Seconds from one look to the next.
_LOOK: Final = 0.05


def takes_lock(
    connection: Connection,
    lock: int,
    patience: float,
    between: Callable[[], object] = lambda: None,
) -> bool:
    """Tell whether the transaction has *lock* until its end; asks for up to *patience* seconds.

    *between* is done after each look that found it taken.
    """
    until = time.monotonic() + patience
    while not connection.scalar(select(func.pg_try_advisory_xact_lock(lock))):
        if time.monotonic() > until:
            return False
        between()
        time.sleep(_LOOK)
    return True


#: How SQLAlchemy writes a datetime to SQLite; SQLite's clock knows milliseconds.
_SQLITE_FORMAT = "%Y-%m-%d %H:%M:%f000"


def database_now(engine: Engine) -> ColumnElement[datetime]:
    """Return the present moment, also within a long transaction."""
    if engine.dialect.name == "postgresql":
        return func.clock_timestamp(type_=DateTime(timezone=True))
    return func.strftime(_SQLITE_FORMAT, "now", type_=DateTime(timezone=True))


def database_time_after(engine: Engine) -> ColumnElement[datetime]:
    """Return the moment that is the parameter ``seconds`` (fractions allowed) from now."""
    seconds = bindparam("seconds", type_=Float)
    if engine.dialect.name == "postgresql":
        span = func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        return database_now(engine) + span
    span = func.printf("%+.3f seconds", seconds)
    return func.strftime(_SQLITE_FORMAT, "now", span, type_=DateTime(timezone=True))


def ask_time(engine: Engine) -> datetime:
    """Return the database's time; raises StoreUnavailable."""
    asked = select(database_now(engine))
    there: datetime = in_transaction(reading(engine), lambda one: one.execute(asked).scalar_one())
    return there
