"""What a database loses: commits that are not on its disk, tables of another release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from angzarr.doctor import finding
from angzarr.doctor.finding import Area, Check, Finding, Severity
from angzarr.maintenance.schema_versions import Revision, SchemaStanding

_DATABASE, _CRITICAL, _ERROR = Area.DATABASE, Severity.CRITICAL, Severity.ERROR
_WARNING = Severity.WARNING
#: From what share of its connections on a PostgreSQL has few left.
_FEW_LEFT: Final = 0.8

SYNCHRONOUS: Final = Check(
    id="postgresql-synchronous-commit",
    area=_DATABASE,
    severity=_CRITICAL,
    looks_at="synchronous_commit",
    why="a crash forgets what was committed last: delayed messages and letters that were let go"
    " elsewhere",
)
FSYNC: Final = Check(
    id="postgresql-fsync",
    area=_DATABASE,
    severity=_CRITICAL,
    looks_at="fsync, full_page_writes",
    why="a power cut leaves the whole database damaged: delays, claims, ledger and books",
)
CONNECTIONS: Final = Check(
    id="postgresql-connections",
    area=_DATABASE,
    severity=_WARNING,
    looks_at="connections in use, and those that the fleet may open, against max_connections",
    why="a worker that gets no connection holds its messages until one is free",
)
BEHIND: Final = Check(
    id="tables-behind",
    area=_DATABASE,
    severity=_WARNING,
    looks_at="revisions of the tables of ledger, books and ordering",
    why="a process upgrades the tables at start, or refuses to start if that is off: messages wait",
)
NEWER: Final = Check(
    id="tables-newer",
    area=_DATABASE,
    severity=_ERROR,
    looks_at="revisions of the tables of ledger, books and ordering",
    why="this release does not touch tables of a newer one: messages and letters wait",
)
APART: Final = Check(
    id="books-and-order-apart",
    area=_DATABASE,
    severity=_WARNING,
    looks_at="ordering.url against books",
    why="a rebuild reads one database and moves lanes in another: what is appended between the two"
    " waits for a gap to be found",
)
ONE_HOST: Final = Check(
    id="database-of-one-host",
    area=_DATABASE,
    severity=_WARNING,
    looks_at="addresses of ledger, store, books and facts",
    why="SQLite is a file of one machine: other workers have another one, or none, and it is gone"
    " with the disk",
)
CHECKS: Final = (SYNCHRONOUS, FSYNC, CONNECTIONS, BEHIND, NEWER, APART, ONE_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSeen:
    """The tables of one schema."""

    schema: str
    revision: Revision
    #: Whether processes upgrade them automatically.
    migrates: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSeen:
    """A database as it is; settings that it does not tell are missing."""

    at: str
    #: What it is used for: ``ledger``, ``store``, ``books``, ``ordering``, ``facts``.
    roles: Sequence[str] = ("ledger",)
    kind: str = "postgresql"
    settings: Mapping[str, str] = field(default_factory=dict)
    used: int | None = None
    #: Connections that all living workers may open at most.
    wanted: int | None = None
    skew: timedelta | None = None
    tables: Sequence[TablesSeen] = ()


def findings(seen: DatabaseSeen) -> Iterator[Finding]:
    """The findings about a database."""
    if seen.kind == "sqlite":
        yield ONE_HOST.found(
            seen.at,
            f"SQLite holds {', '.join(seen.roles)}",
            "set it to postgresql+psycopg://…, for all but one machine",
        )
    else:
        yield from _durability(seen)
        yield from _connections(seen)
    yield from finding.clock(seen.at, seen.skew)
    for tables in seen.tables:
        yield from _tables(seen, tables)


def _durability(seen: DatabaseSeen) -> Iterator[Finding]:
    given = seen.settings
    if given.get("synchronous_commit") == "off":
        yield SYNCHRONOUS.found(
            seen.at,
            "synchronous_commit is off",
            "ALTER SYSTEM SET synchronous_commit = 'on'; SELECT pg_reload_conf(); and where psql's"
            " \\drds lists it: ALTER DATABASE or ALTER ROLE … RESET synchronous_commit;",
        )
    for name in ("fsync", "full_page_writes"):
        if given.get(name) == "off":
            yield FSYNC.found(
                seen.at,
                f"{name} is off",
                f"ALTER SYSTEM SET {name} = 'on'; SELECT pg_reload_conf();",
            )


def _connections(seen: DatabaseSeen) -> Iterator[Finding]:
    most = int(seen.settings.get("max_connections", "0"))
    if not most:
        return
    change = f"raise max_connections above {most}, or put PgBouncer (session pooling) before it"
    if seen.used is not None and seen.used >= most * _FEW_LEFT:
        yield CONNECTIONS.found(seen.at, f"{seen.used} of {most} connections are in use", change)
    elif seen.wanted is not None and seen.wanted > most:
        yield CONNECTIONS.found(
            seen.at,
            f"its workers may open {seen.wanted}, and each child process more; max_connections is"
            f" {most}",
            change,
            severity=Severity.INFO,
        )


def _tables(seen: DatabaseSeen, tables: TablesSeen) -> Iterator[Finding]:
    at, revision = f"{seen.at}, {tables.schema}", tables.revision
    told = f"revision {revision.found or 'none'}, this release needs {revision.needed}"
    match revision.standing:
        case SchemaStanding.NEWER:
            yield NEWER.found(at, told, "run the newer release here too")
        case SchemaStanding.BEHIND | SchemaStanding.MISSING:
            milder = Severity.INFO if revision.standing is SchemaStanding.MISSING else _WARNING
            yield BEHIND.found(
                at,
                told,
                f"angzarr database upgrade {tables.schema}",
                severity=milder if tables.migrates else _ERROR,
            )


def apart(at: str, ordering: str, books: str) -> Finding:
    """The finding that lanes and event books are in two databases."""
    return APART.found(
        at,
        f"ordering is at {ordering}, books at {books}",
        "leave ordering.url out: it is then the database of the books; read models belong there",
    )
