"""Whose fault an error of a rebuild or a run is: an event's, a lock's, or the database's. Pure."""

from __future__ import annotations

from typing import Final

from sqlalchemy.exc import DBAPIError

_NO_LOCK: Final = "55P03"
#: SQLSTATEs of a lock that was not got, a deadlock, a conflict and a statement that was ended.
_BUSY: Final = (_NO_LOCK, "40P01", "40001", "57014")
#: And how those of a server in trouble begin.
_TROUBLE: Final = (*_BUSY, "08", "53", "57", "58")
#: How SQLite's names begin for the same.
_SQLITE_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_SQLITE_TROUBLE: Final = (*_SQLITE_BUSY, "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CORRUPT")


def is_busy(error: BaseException) -> bool:
    """Tell whether somebody else's transaction was in the way; nothing is broken."""
    return _state(error).startswith((*_BUSY, *_SQLITE_BUSY))


def lacks_lock(error: BaseException) -> bool:
    """Tell whether a lock was waited for in vain on PostgreSQL (lock_not_available)."""
    return _state(error) == _NO_LOCK


def is_trouble(error: BaseException) -> bool:
    """Tell whether the database does not serve, so that no event is to blame."""
    gone = isinstance(error, DBAPIError) and error.connection_invalidated
    return gone or _state(error).startswith((*_TROUBLE, *_SQLITE_TROUBLE))


def _state(error: BaseException) -> str:
    """Return the SQLSTATE of *error*, or SQLite's name for it; empty: it is not a database's."""
    original = error.orig if isinstance(error, DBAPIError) else error
    for name in ("sqlstate", "sqlite_errorname"):
        if isinstance(state := getattr(original, name, None), str):
            return state
    return ""
