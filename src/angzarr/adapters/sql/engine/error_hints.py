"""Error hints: why a database does not serve, in one line that says what to do. Pure.

Texts are libpq's and SQLite's own: a connect that fails has no SQLSTATE. In another language the
line comes without its hint. `is_busy`, `lacks_lock` and `is_trouble` tell whether an event, a lock
or the database is to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from angzarr.adapters.sql.engine.postgresql import hint_of
from angzarr.runtime.text import printable

#: Characters of what a driver says that are repeated.
_LONGEST: Final = 1_000

_ROOM: Final = "make room on the disk of the database"
_GRANT: Final = "give the user of the address the right, with GRANT, or name another user"
_OWNER: Final = "let its owner do it, or grant the owner's role to the user of the address"
_LOGIN: Final = "check the user and the password of the address, and the server's pg_hba.conf"
_ROLE: Final = "make it with CREATE ROLE … LOGIN, or correct the user of the address"
_MAY_LOG_IN: Final = "allow it with ALTER ROLE … LOGIN, or name another user in the address"
_DATABASE: Final = "make it with CREATE DATABASE, or correct its name in the address"
_CLOSED: Final = (
    "it does not allow connections: ALTER DATABASE … ALLOW_CONNECTIONS true opens it again"
)
_SLOTS: Final = "raise max_connections of the server, or let fewer processes connect"
_OF_ROLE: Final = "raise it with ALTER ROLE … CONNECTION LIMIT, or let fewer processes connect"
_OF_DATABASE: Final = (
    "raise it with ALTER DATABASE … CONNECTION LIMIT, or let fewer processes connect"
)
_TABLE: Final = "let a user who may create tables start the worker, or check the address"
_HOST: Final = "check host and port of the address, and that the server runs"
_FILE: Final = "check that the path is an SQLite database, or name a file that is not there yet"

#: SQLSTATE → what to do; the first five characters of what a statement met.
_BY_STATE: Final = {
    "28P01": _LOGIN,
    "28000": _LOGIN,
    "3D000": _DATABASE,
    "42501": _GRANT,
    "42P01": _TABLE,
    "3F000": _TABLE,
    "53100": _ROOM,
    "53300": _SLOTS,
}
#: The same for a connect that fails, by what libpq says: a row whose texts all stand there.
_BY_TEXT: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (("authentication failed for user",), _LOGIN),
    (("no password supplied",), _LOGIN),
    (("no pg_hba.conf entry",), _LOGIN),
    (("pg_hba.conf rejects",), _LOGIN),
    (("permission denied",), _GRANT),
    (('too many connections for role "',), _OF_ROLE),
    (('too many connections for database "',), _OF_DATABASE),
    (('role "', '" does not exist'), _ROLE),
    (('role "', '" is not permitted to log in'), _MAY_LOG_IN),
    (('database "', '" does not exist'), _DATABASE),
    (('database "', '" is not currently accepting connections'), _CLOSED),
    (("too many clients",), _SLOTS),
    (("remaining connection slots",), _SLOTS),
    (("Connection refused",), _HOST),
    (("could not translate host name",), _HOST),
    (("failed to resolve host",), _HOST),
    (('socket "', "No such file or directory"), _HOST),  # a certificate may be missing, too
    (("timeout expired",), _HOST),
)
#: How SQLite's error names begin; the first that fits.
_BY_NAME: Final[Sequence[tuple[str, str]]] = (
    (
        "SQLITE_CANTOPEN",
        "make the folder of {path}, and let the user of this process read and write it",
    ),
    (
        "SQLITE_READONLY_DBMOVED",
        "{path} was moved or replaced while it was open: put it back, and start the process anew",
    ),
    (
        "SQLITE_READONLY",
        "let the user of this process write to {path} and its folder",
    ),
    ("SQLITE_NOTADB", _FILE),
    ("SQLITE_CORRUPT", "restore {path} from a backup"),
    ("SQLITE_FULL", _ROOM),
    ("SQLITE_IOERR", "check the disk of {path}, and that there is room on it"),
    ("SQLITE_PERM", "let the user of this process write to {path} and its folder"),
)


def describe_error(error: object, url: URL) -> str:
    """*error*, a driver's, as one printable line, and what to do where that is known."""
    said = printable(" ".join(str(error).split()))[:_LONGEST]
    if cure := hint_of(error, url):
        return said + cure
    remedy = _of_sqlite(error, url) or _of_postgresql(error, said)
    return f"{said} ({remedy})" if remedy else said


def _of_sqlite(error: Any, url: URL) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    found = next((cure for start, cure in _BY_NAME if name.startswith(start)), "")
    return found.format(path=url.database)


def _of_postgresql(error: Any, said: str) -> str:
    if state := getattr(error, "sqlstate", None):
        return _OWNER if said.startswith("must be owner of") else _BY_STATE.get(state, "")
    if getattr(error, "sqlite_errorname", None):
        return ""
    return next((cure for texts, cure in _BY_TEXT if all(one in said for one in texts)), "")


_NO_LOCK: Final = "55P03"
#: SQLSTATEs of a lock that was not got, a deadlock, a conflict and a statement that was ended.
_BUSY: Final = (_NO_LOCK, "40P01", "40001", "57014")
#: And how those of a server in trouble begin.
_TROUBLE: Final = (*_BUSY, "08", "53", "57", "58")
#: How SQLite's names begin for the same.
_SQLITE_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_SQLITE_TROUBLE: Final = (*_SQLITE_BUSY, "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CORRUPT")


def is_busy(error: BaseException) -> bool:
    """True if another transaction was in the way; nothing is broken."""
    return _state(error).startswith((*_BUSY, *_SQLITE_BUSY))


def lacks_lock(error: BaseException) -> bool:
    """True if a lock was waited for in vain on PostgreSQL (lock_not_available)."""
    return _state(error) == _NO_LOCK


def is_trouble(error: BaseException) -> bool:
    """True if the database does not serve, so that no event is to blame."""
    gone = isinstance(error, DBAPIError) and error.connection_invalidated
    return gone or _state(error).startswith((*_TROUBLE, *_SQLITE_TROUBLE))


def _state(error: BaseException) -> str:
    """The SQLSTATE of *error*, or SQLite's name for it; empty: it is not a database's."""
    original = error.orig if isinstance(error, DBAPIError) else error
    for name in ("sqlstate", "sqlite_errorname"):
        if isinstance(state := getattr(original, name, None), str):
            return state
    return ""
