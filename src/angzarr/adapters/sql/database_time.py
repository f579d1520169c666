"""The database's time as SQL, so that no lease hangs on a worker's clock."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, DateTime, Engine, Float, bindparam, func, select

from angzarr.adapters.sql.engine import in_transaction, reading

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
