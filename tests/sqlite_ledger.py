"""The ledger and its companions in an SQLite file of their own, for tests.

A file with all tables is made once and copied for each ledger; it goes when its ledger goes.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from datetime import timedelta
from functools import cache
from pathlib import Path

from sqlalchemy import delete, insert, select, update

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.groups import SqlGroups
from angzarr.adapters.sql.ledger.job_rows import job_from, job_row, save_edit
from angzarr.adapters.sql.ledger.schema import LEDGER, replay_job_edits, replay_jobs
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import ledger_letters, letter_row
from angzarr.adapters.sql.ledger.writes import SqlWrites

FOLDER = tempfile.TemporaryDirectory(prefix="angzarr-ledgers-")
#: A loaded machine may pause a thread for long.
TIMEOUT = timedelta(seconds=60)


@cache
def template():
    path = Path(FOLDER.name, "template.db")
    engine = build_engine(f"sqlite:///{path}", power_safe=False)
    LEDGER.make_ready(engine)
    engine.dispose()
    return path


class SqliteDatabase(LedgerDatabase):
    """A ledger's database that is removed with this object."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(dir=FOLDER.name)
        path = shutil.copy(template(), Path(folder, "ledger.db"))
        engine = build_engine(f"sqlite:///{path}", power_safe=False, timeout=TIMEOUT)
        super().__init__(engine)
        weakref.finalize(self, remove, engine, folder)


def remove(engine, folder):
    engine.dispose()
    shutil.rmtree(folder, ignore_errors=True)


class SqliteLedger(SqlLedger, SqlGroups):
    """A ledger with its groups in a database of its own, which it lends as `database`."""

    def __init__(self, clock=None) -> None:
        self.database = SqliteDatabase()
        super().__init__(self.database, clock)


class SqliteAlerts(SqlAlerts):
    def __init__(self, clock=None) -> None:
        super().__init__(SqliteDatabase(), clock)


class SqliteBrake(SqlBrake):
    def __init__(self, clock=None) -> None:
        super().__init__(SqliteDatabase(), clock)


class SqliteWrites(SqlWrites):
    def __init__(self, clock=None) -> None:
        super().__init__(SqliteDatabase(), clock)


def put_job(database, job):
    """Write *job* over what is there, or beside it, behind the back of its store."""

    def step(connection):
        connection.execute(delete(replay_jobs).where(replay_jobs.c.id == job.id))
        connection.execute(insert(replay_jobs).values(**job_row(job)))

    database.write(step)


def put_edit(database, job_id, edit):
    """Write *edit* over that of a job."""

    def step(connection):
        connection.execute(delete(replay_job_edits).where(replay_job_edits.c.job_id == job_id))
        save_edit(connection, job_id, edit)

    database.write(step)


def rows_of(database, table):
    return database.read(lambda connection: list(connection.execute(select(table))))


def jobs_in(database):
    return {row.id: job_from(row) for row in rows_of(database, replay_jobs)}


def empty(database, table):
    database.write(lambda connection: connection.execute(delete(table)))


def put_letter(database, entry_id, failure):
    """Write *failure* over the letter of an entry."""
    put = update(ledger_letters).where(ledger_letters.c.entry_id == entry_id)
    changed = put.values(**letter_row(entry_id, failure))
    database.write(lambda connection: connection.execute(changed))
