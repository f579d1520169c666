"""The revision of the ledger's tables: what it is, what this release needs, and how to get there.

Tables that are new are made at once. Those that are behind go through Alembic's revisions, by one
process at a time. Those of a newer release are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, insert, inspect, select, text

from angzarr.adapters.sql import alert_tables, brake_tables, job_tables, write_tables
from angzarr.adapters.sql.advisory_lock import takes_lock
from angzarr.adapters.sql.engine import (
    CREATE_LOCK,
    address,
    in_transaction,
    patient,
    reading,
    told_as,
)
from angzarr.adapters.sql.ledger_tables import HEAD, METADATA, ledger_entries, ledger_version
from angzarr.analysis.upkeep import Revision, Standing
from angzarr.errors import LedgerUnavailable

#: Modules whose tables must be known before any is created. Each table is also one of a revision.
TABLES: Final = (alert_tables, brake_tables, job_tables, write_tables)

_SCRIPTS: Final = Path(__file__).parent / "migrations"
#: Databases made before there were revisions have these tables and no version.
_FIRST: Final = "0001"
#: Under this lock, in PostgreSQL's space of advisory locks, one process at a time upgrades
#: ("ledger" in ASCII). Not the one for creating tables: whoever waits for that one would wait for
#: an index, and the index for them.
_UPGRADE_LOCK: Final = int.from_bytes(b"ledger", "big")
#: Seconds to wait for another process that upgrades.
_PATIENCE: Final = 5.0


def make_ready(engine: Engine, *, migrate: bool = True) -> None:
    """See that the tables are as this release needs them.

    Raises LedgerUnavailable with the cure where they are not and may not be changed.
    """
    revision = revision_of(engine)
    match revision.standing:
        case Standing.CURRENT:
            return
        case Standing.NEWER:
            raise LedgerUnavailable(_newer(engine, revision))
        case _ if not migrate:
            raise LedgerUnavailable(_behind(engine, revision))
    upgrade(engine)


def revision_of(engine: Engine) -> Revision:
    """Return the revision of the tables; raises LedgerUnavailable."""
    return in_transaction(reading(engine), _revision, away=LedgerUnavailable)


def upgrade(engine: Engine) -> Revision:
    """Bring the tables to what this release needs and return what they were.

    A revision that fails leaves those before it in force. Raises LedgerUnavailable, also while
    another process upgrades.
    """
    before = in_transaction(engine, _create, away=LedgerUnavailable)
    if before.standing is Standing.NEWER:
        raise LedgerUnavailable(_newer(engine, before))
    if before.standing is not Standing.BEHIND:
        return before
    with told_as(LedgerUnavailable, engine), patient(engine) as slow, _alone(slow):
        _run(slow)
    return before


def differences(engine: Engine) -> list[str]:
    """Return how the tables differ from those that this release expects, as Alembic says it."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415 - costs 0.2 s
    from alembic.migration import MigrationContext  # noqa: PLC0415 - the same

    def mine(_object: Any, name: str | None, kind: str, *_rest: Any) -> bool:
        return kind != "table" or name in METADATA.tables

    def compare(connection: Connection) -> list[str]:
        options = {"include_object": mine, "version_table": "-", "compare_type": True}
        here = MigrationContext.configure(connection, opts=options)
        return [str(one) for one in compare_metadata(here, METADATA)]

    return in_transaction(reading(engine), compare, away=LedgerUnavailable)


def _revision(connection: Connection) -> Revision:
    tables = inspect(connection)
    if tables.has_table(ledger_version.name):
        found = connection.scalar(select(func.max(ledger_version.c.version_num)))
        if found:
            return Revision(found, HEAD)
    return Revision(_FIRST if tables.has_table(ledger_entries.name) else "", HEAD)


def _create(connection: Connection) -> Revision:
    """Make the tables where there are none, at once; return what was there."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(CREATE_LOCK)))
    found = _revision(connection)
    if found.standing is Standing.MISSING:
        METADATA.create_all(connection)
        connection.execute(insert(ledger_version).values(version_num=HEAD))
    return found


def _run(engine: Engine) -> None:
    """Run the revisions that are missing; SQLite runs all of them in one transaction."""
    from alembic import command  # noqa: PLC0415 - costs 0.2 s and is seldom needed
    from alembic.config import Config  # noqa: PLC0415 - the same

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        one = connection.begin() if engine.dialect.name == "sqlite" else None
        if _revision(connection).standing is not Standing.BEHIND:
            return
        has_version = inspect(connection).has_table(ledger_version.name)
        if one is None:
            connection.rollback()
        if not has_version:
            command.stamp(config, _FIRST)
        command.upgrade(config, HEAD)
        if one is not None:
            one.commit()


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """Keep other processes from upgrading; raises LedgerUnavailable where one of them does."""
    if engine.dialect.name == "sqlite":
        yield  # its one transaction is the lock
        return
    with engine.connect() as connection:
        # Between two looks its snapshot would be one that an index waits for.
        if not takes_lock(connection, _UPGRADE_LOCK, _PATIENCE, connection.rollback):
            msg = f"the ledger at {address(engine.url)} is being upgraded by another process"
            raise LedgerUnavailable(msg)
        # Also ends the portal of the statement before, with its snapshot.
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield


def _newer(engine: Engine, revision: Revision) -> str:
    return (
        f"the ledger at {address(engine.url)} was upgraded by a newer release: it has revision"
        f" {revision.found}, this release knows up to {revision.needed}; run the newer release"
        " here too, letters wait in their queues meanwhile"
    )


def _behind(engine: Engine, revision: Revision) -> str:
    has = f"has revision {revision.found}" if revision.found else "has no tables"
    return (
        f"the ledger at {address(engine.url)} {has}, this release needs {revision.needed}, and"
        " ledger_migrate is off: run `angzarr ledger upgrade`"
    )
