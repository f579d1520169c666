"""A green space on SQLite: a file beside the live one, opened with the live one attached.

Unqualified names mean the file's tables first; in place it is the file that is attached, and they
mean the live ones. A commit to both files is two: one is killed between them at no harm, for what
the side file has is written again from its places (ADR 0054).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, event

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.sqlite_files import make_private
from angzarr.adapters.sql.rebuild.progress import METADATA, SPACE
from angzarr.adapters.sql.rebuild.space import Layout, Space, in_hand, in_the_way, no_table
from angzarr.errors import RebuildError
from angzarr.projections.shadow_table import Plan

_LIVE: Final = "angzarr_live"
_WRITES: Final = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
#: Of `PRAGMA table_xinfo`: an ordinary column.
_ORDINARY: Final = 0


class SqliteSpace(Space):
    """A space in the file ``<database>.rebuild-<projection>`` beside that of *engine*."""

    def __init__(self, engine: Engine, plan: Plan, *, in_place: bool = False) -> None:
        super().__init__(plan, in_place=in_place)
        self._live, self._green = ("main", SPACE) if in_place else (_LIVE, "main")
        self._file = Path(engine.url.database or "").absolute()
        self._stray = ""
        #: Tables outside of the read model to which it refers.
        self._outward: list[str] = []
        #: Tables outside of it that refer to it.
        self._inward: set[str] = set()

    def enter(self) -> None:
        """Take the lock beside the side file, and open both."""
        self._side = self._file.with_name(f"{self._file.name}.rebuild-{self.plan.projection}")
        if not self._take_lock(Path(f"{self._side}.lock")):
            raise RebuildError(in_hand(self.plan))
        # What a power cut takes of the last batches, it takes with their places.
        first = self._file if self.in_place else self._side
        engine = build_engine(f"sqlite:///{first}", power_safe=self.in_place)
        self._held.callback(engine.dispose)
        self._engine = engine
        event.listen(engine, "connect", self._attach)
        self.connection = self._held.enter_context(engine.connect())
        self.connection.execution_options(schema_translate_map={SPACE: self._green})
        self.exclusive(on=False)

    def exists(self) -> bool:
        """True if the side file has anything in it."""
        found = f"SELECT 1 FROM {self._green}.sqlite_master WHERE name = 'angzarr_rebuild'"  # noqa: S608
        return self.connection.exec_driver_sql(found).first() is not None

    def layouts(self) -> Sequence[Layout]:
        """The live tables; raises RebuildError for those that cannot be in two files."""
        found = [self.layout(name) for name in self.plan.tables]
        self._check_references()
        return found

    def layout(self, name: str) -> Layout:
        """The live table, as its file has it."""
        found = f"SELECT type, sql FROM {self._live}.sqlite_master WHERE lower(name) = lower(?)"  # noqa: S608
        row = self.connection.exec_driver_sql(found, (name,)).first()
        if row is None or row.type != "table" or row.sql.upper().startswith("CREATE VIRTUAL"):
            raise RebuildError(no_table(self.plan, name))
        listed = f"PRAGMA {self._live}.table_xinfo({self.quoted(name)})"
        found_columns = self.connection.exec_driver_sql(listed)
        columns = [one for one in found_columns if one.hidden == _ORDINARY]
        keys = [one for one in columns if one.pk]
        # What is so declared is the row's own number, which SQLite gives it.
        counts = len(keys) == 1 and keys[0].type.upper() == "INTEGER"
        counts = counts and "WITHOUT" not in row.sql.upper().rpartition(")")[2]  # ROWID
        return Layout(
            name,
            tuple(one.name for one in columns),
            frozenset(one.name for one in keys if counts),
            row.sql,
        )

    def make(self) -> None:
        """Make tables and indexes as the live ones are."""
        statements = (
            f"SELECT sql FROM {self._live}.sqlite_master WHERE lower(tbl_name) = lower(?)"  # noqa: S608
            " AND type IN ('table', 'index') AND sql IS NOT NULL ORDER BY type = 'index'"
        )
        for name in self.plan.tables:
            for (statement,) in self.connection.exec_driver_sql(statements, (name,)).all():
                self.run(statement)
        METADATA.create_all(self.connection, checkfirst=False)

    def aim(self) -> None:
        """Refuse writes to the live file, and check no reference that leads there from here."""
        raw: Any = self.connection.connection.dbapi_connection
        raw.execute(f"PRAGMA foreign_keys = {'OFF' if self._outward else 'ON'}")
        self.writable(on=not self.plan.tables)

    def watch(self) -> None:
        """Do nothing: each refusal is reported once."""

    def strays(self) -> str:
        """Name a live table to which a write was refused, whatever became of the error."""
        return self.denied()

    def denied(self) -> str:
        """Name a live table to which a write was just refused."""
        stray, self._stray = self._stray, ""
        return stray

    def exclusive(self, *, on: bool) -> None:
        """Lock the live file with BEGIN, or only what the transaction comes to write."""
        self.connection.execution_options(sqlite_begin="BEGIN IMMEDIATE" if on else "BEGIN")

    def hold_still(self) -> None:
        """Do nothing: any transaction does."""

    def outlive_crashes(self) -> None:
        """Do nothing: commits to the live file always do, and so do those to one attached."""

    def lock(self, tables: Sequence[str]) -> None:  # noqa: ARG002 - PostgreSQL needs them
        """Let references be checked at the end; BEGIN IMMEDIATE has locked both files."""
        self.run("PRAGMA defer_foreign_keys = ON")

    def writable(self, *, on: bool) -> None:
        """Allow writes to the live file, or refuse them as a mistake of the projection."""
        raw: Any = self.connection.connection.dbapi_connection
        raw.set_authorizer(None if on else self._allows)

    def renumber(self, table: Layout) -> None:
        """Do nothing: SQLite goes on beyond the highest key that was ever there."""

    def check(self, table: Layout) -> None:
        """Look for broken references: those that lead out of the file were not checked."""
        name = self.quoted(table.name)
        broken = self.connection.exec_driver_sql(f"PRAGMA {self._live}.foreign_key_check({name})")
        if (row := broken.first()) is not None:
            msg = f"{table.name} would refer to rows of {row.parent} that are not there"
            raise RebuildError(msg)
        for source in self._inward if self._outward else ():  # else the commit checks them
            broken = self.connection.exec_driver_sql(
                f"PRAGMA {self._live}.foreign_key_check({self.quoted(source)})"
            )
            if any(row.parent.lower() == table.name.lower() for row in broken):
                msg = f"{source} would refer to rows of {table.name} that are not there"
                raise RebuildError(msg)

    def remove(self) -> None:
        """Do nothing: files go after the commit."""

    def removed(self) -> None:
        """Delete the side file, and let others begin."""
        self.connection.close()
        self._engine.dispose()
        for end in ("-wal", "-shm", "", ".lock"):
            Path(f"{self._side}{end}").unlink(missing_ok=True)
        self.close()

    def live(self, table: str) -> str:
        """The table in the attached file."""
        return f"{self._live}.{self.quoted(table)}"

    def green(self, table: str) -> str:
        """The table in the side file."""
        return f"{self._green}.{self.quoted(table)}"

    def _take_lock(self, path: Path) -> bool:
        """Take the lock that ends with the process; False at once if another process has it."""
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return False
            if _is(file, path):
                self._held.callback(os.close, file)
                return True
            os.close(file)  # who had it has just deleted it

    def _attach(self, connection: sqlite3.Connection, _: object) -> None:
        if self.in_place:
            make_private(str(self._side))
            connection.execute(f"ATTACH ? AS {self._green}", (str(self._side),))
            connection.execute(f"PRAGMA {self._green}.journal_mode = WAL")
            return
        connection.execute(f"ATTACH ? AS {self._live}", (str(self._file),))
        connection.execute(f"PRAGMA {self._live}.synchronous = FULL")

    def _allows(self, action: int, table: str | None, _: object, file: str | None, *__: Any) -> int:
        if action in _WRITES and file == self._live:
            self._stray = table or ""
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _check_references(self) -> None:
        """Refuse references between the read model and other tables that two files cannot have."""
        ours = {name.lower() for name in self.plan.tables}
        everything = f"SELECT name FROM {self._live}.sqlite_master WHERE type = 'table'"  # noqa: S608
        for (source,) in self.connection.exec_driver_sql(everything).all():
            for key in self._references(source):
                target = key.table.lower()
                if target in ours and source.lower() not in ours and _acts(key, at_once=True):
                    raise RebuildError(in_the_way(source, key.table, f"column {key[3]}"))
                if target in ours and source.lower() not in ours:
                    self._inward.add(source)
        own = [key for name in self.plan.tables for key in self._references(name)]
        self._outward = [key.table for key in own if key.table.lower() not in ours]
        if self._outward and any(_acts(key) for key in own if key.table.lower() in ours):
            msg = (
                f"the read model of {self.plan.projection} refers to {self._outward[0]}, which is"
                " not in `tables`, and has foreign keys with actions of its own: SQLite checks both"
                " in one file only, so rebuild it in place (--in-place)"
            )
            raise RebuildError(msg)

    def _references(self, name: str) -> list[Any]:
        listed = f"PRAGMA {self._live}.foreign_key_list({self.quoted(name)})"
        return list(self.connection.exec_driver_sql(listed))


def _acts(key: Any, *, at_once: bool = False) -> bool:
    """True if a foreign key does something to its rows, or *at_once* refuses."""
    passive = {"NO ACTION"} if at_once else {"NO ACTION", "RESTRICT"}
    return key.on_delete not in passive or (not at_once and key.on_update not in passive)


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
