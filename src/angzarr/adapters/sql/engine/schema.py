"""Schema: tables that are upgraded together, by revisions of their own, and their upkeep.

New tables are made at once. Tables that are behind go through Alembic's revisions, by one process
at a time. Tables of a newer release are left alone. Alembic is imported only where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import SchemaItem

from angzarr.adapters.sql.engine.engine import (
    CREATE_LOCK,
    address,
    in_transaction,
    patient,
    reading,
    unavailable_as,
)
from angzarr.adapters.sql.engine.statements import takes_lock
from angzarr.errors import StoreUnavailable, Unavailable
from angzarr.maintenance.schema_versions import Revision, SchemaStanding, TablesUpkeep

_Answer = TypeVar("_Answer")

#: What tables have that were made before there were revisions, and so no version.
FIRST: Final = "0001"
#: Seconds to wait for another process that upgrades.
_PATIENCE: Final = 5.0


def version_table(name: str, metadata: MetaData) -> Table:
    """The table of one row that says the revision of schema *name*, as Alembic makes it.

    It is not Alembic's default one: other software may share the database.
    """
    return Table(
        f"{name}_version",
        metadata,
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{name}_version_pkc"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Tables with one revision. Its verbs raise `away` where the database does not serve.

    Its scripts are in ``migrations/<name>``, and its revision is in ``<name>_version``.
    """

    name: str
    #: As messages say it.
    called: str
    #: All its tables with that of its revision. Each is also one of a script.
    metadata: MetaData
    #: The revision of these tables.
    head: str
    #: Any of these tells that there are tables where nothing tells their revision.
    first: tuple[Table, ...]
    #: The command that upgrades it, and the setting that leaves it to that.
    cure: str
    setting: str
    #: What waits in its queue while the tables cannot be used.
    waiting: str = "messages"
    away: type[Unavailable] = StoreUnavailable
    #: In PostgreSQL's space of advisory locks: the name in ASCII, eight characters at most. One
    #: process at a time upgrades under it. Not the one for creating tables: who waits for that
    #: one would wait for an index, and the index for them.
    lock: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lock", int.from_bytes(self.name.encode(), "big"))

    @property
    def version(self) -> Table:
        """The table of its revision."""
        return self.metadata.tables[f"{self.name}_version"]

    def make_ready(self, engine: Engine, *, migrate: bool = True, upgrade: bool = True) -> None:
        """See that the tables are as this release needs them.

        Raises `away` with the cure where they are not and may not be changed. Without *upgrade*
        tables are made where there are none, which takes a moment, and left where they are behind.
        """
        revision = self.revision_of(engine)
        match revision.standing:
            case SchemaStanding.CURRENT:
                return
            case SchemaStanding.NEWER:
                raise self.away(self._newer(engine, revision))
            case _ if not migrate:
                raise self.away(self._behind(engine, revision, f" and {self.setting} is off:"))
            case SchemaStanding.BEHIND if not upgrade:
                raise self.away(self._behind(engine, revision, " which only workers upgrade:"))
        self.upgrade(engine)

    def revision_of(self, engine: Engine) -> Revision:
        """The revision of the tables."""
        return in_transaction(reading(engine), self.found, away=self.away)

    def upgrade(self, engine: Engine) -> Revision:
        """Bring the tables to what this release needs and return what they were.

        A revision that fails leaves those before it in force. Raises `away` also while another
        process upgrades.
        """
        before = in_transaction(engine, self._create, away=self.away)
        if before.standing is SchemaStanding.NEWER:
            raise self.away(self._newer(engine, before))
        if before.standing is not SchemaStanding.BEHIND:
            return before
        with unavailable_as(self.away, engine), patient(engine) as slow, self.alone(slow):
            self._run(slow)
        return before

    def differences(self, engine: Engine) -> list[str]:
        """The differences from the tables that this release expects, as Alembic says it."""
        return in_transaction(
            reading(engine), lambda connection: compare(connection, self.metadata), away=self.away
        )

    def found(self, connection: Connection) -> Revision:
        """The revision of the tables at *connection*."""
        tables = inspect(connection)
        if tables.has_table(self.version.name):
            found = connection.scalar(select(func.max(self.version.c.version_num)))
            if found:
                return Revision(found, self.head)
        before = any(tables.has_table(table.name) for table in self.first)
        return Revision(FIRST if before else "", self.head)

    @contextmanager
    def alone(self, engine: Engine) -> Iterator[None]:
        """Keep other processes from upgrading; raises `away` where one of them does."""
        if engine.dialect.name == "sqlite":
            yield  # its one transaction is the lock
            return
        with engine.connect() as connection:
            # Between two looks its snapshot would be one that an index waits for.
            if not takes_lock(connection, self.lock, _PATIENCE, connection.rollback):
                at = address(engine.url)
                msg = f"{self.called} at {at} is being upgraded by another process"
                raise self.away(msg)
            # Also ends the portal of the statement before, with its snapshot.
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield

    def _create(self, connection: Connection) -> Revision:
        """Make the tables where there are none, at once; return what was there."""
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(CREATE_LOCK)))
        found = self.found(connection)
        if found.standing is SchemaStanding.MISSING:
            self.metadata.create_all(connection)
            connection.execute(insert(self.version).values(version_num=self.head))
        return found

    def _run(self, engine: Engine) -> None:
        """Run the revisions that are missing; SQLite runs all of them in one transaction."""
        with engine.connect() as connection:
            one = connection.begin() if engine.dialect.name == "sqlite" else None
            if self.found(connection).standing is not SchemaStanding.BEHIND:
                return
            adopt = None if inspect(connection).has_table(self.version.name) else FIRST
            if one is None:
                connection.rollback()
            run_revisions(connection, self.name, self.metadata, self.head, adopt=adopt)
            if one is not None:
                one.commit()

    def _newer(self, engine: Engine, revision: Revision) -> str:
        return (
            f"{self.called} at {address(engine.url)} was upgraded by a newer release: it has"
            f" revision {revision.found}, this release knows up to {revision.needed}; run the newer"
            f" release here too, {self.waiting} wait in their queues meanwhile"
        )

    def _behind(self, engine: Engine, revision: Revision, why: str) -> str:
        has = f"has revision {revision.found}" if revision.found else "has no tables"
        return (
            f"{self.called} at {address(engine.url)} {has}, this release needs {revision.needed},"
            f"{why} run `{self.cure}`"
        )


class SchemaDatabase:
    """Transactions on the tables of *schema*, which are made ready when the first begins.

    All verbs raise `away` of the schema when the database does not serve. With *migrate* False
    tables are left as they are, and those that are behind count as away; so they do without
    *upgrade*, with which tables are only made. *reads* are options of
    connections that only read. Safe to use from threads.
    """

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        *,
        migrate: bool = True,
        upgrade: bool = True,
        close: Callable[[], None] | None = None,
        reads: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = engine
        self._schema = schema
        self._migrate = migrate
        self._upgrade = upgrade
        self._reading = reading(engine).execution_options(**reads or {})
        self._is_ready = False
        #: Lets the engine go: its connections are closed unless others use it too.
        self.close = close or engine.dispose

    def prepare(self) -> None:
        """Make the tables ready unless that was done; raises what `Schema.make_ready` does."""
        if not self._is_ready:
            self._schema.make_ready(self.engine, migrate=self._migrate, upgrade=self._upgrade)
            self._is_ready = True

    def look_again(self) -> None:
        """See with the next transaction whether the tables are ready: they may be gone."""
        self._is_ready = False

    def write(self, step: Callable[[Connection], _Answer], *, once: bool = False) -> _Answer:
        """Run *step*, which must be idempotent, in a transaction that may write.

        *once*: it tells whether it was done, and would deny it where it runs a second time.
        """
        self.prepare()
        return in_transaction(self.engine, step, away=self._schema.away, once=once)

    def read(self, step: Callable[[Connection], _Answer]) -> _Answer:
        """Run *step* in a transaction that only reads; on SQLite it waits for no writer."""
        self.prepare()
        return in_transaction(self._reading, step, away=self._schema.away)


class SqlTablesUpkeep(TablesUpkeep):
    """Looks after the tables; nothing is changed that was not asked for."""

    def __init__(self, schema: Schema, engine: Engine, close: Callable[[], None]) -> None:
        self._schema = schema
        self._engine = engine
        self._close = close

    def revision(self) -> Revision:
        """The revision of the tables."""
        return self._schema.revision_of(self._engine)

    def upgrade(self) -> Revision:
        """Bring the tables to what this release needs."""
        return self._schema.upgrade(self._engine)

    def differences(self) -> Sequence[str]:
        """The differences of the tables, in Alembic's words."""
        return self._schema.differences(self._engine)

    def close(self) -> None:
        """Close the pooled connections."""
        self._close()


#: In `Index.info`: the dialect that alone has it, where it has `ddl_if` too, which Alembic does not
#: heed.
ONLY_ON: Final = "only_on"

_SCRIPTS: Final = Path(__file__).parent.parent / "migrations"


def run_revisions(
    connection: Connection, name: str, metadata: MetaData, to: str, *, adopt: str | None = None
) -> None:
    """Run the scripts of schema *name* that are missing up to revision *to*.

    Each is a transaction of its own, unless *connection* is in one. Tables without a revision are
    taken for those of *adopt*.
    """
    from alembic import command  # noqa: PLC0415 - costs 0.2 s and is seldom needed
    from alembic.config import Config  # noqa: PLC0415 - the same

    config = Config()
    config.set_main_option("path_separator", "newline")  # which no folder has in its name
    config.set_main_option("script_location", _option(_SCRIPTS))
    config.set_main_option("version_locations", _option(_SCRIPTS / name))
    config.attributes |= {
        "connection": connection,
        "metadata": metadata,
        "version_table": f"{name}_version",
    }
    if adopt is not None:
        command.stamp(config, adopt)
    command.upgrade(config, to)


def compare(connection: Connection, metadata: MetaData) -> list[str]:
    """The differences from the tables of *metadata*, in Alembic's words."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415 - costs 0.2 s
    from alembic.migration import MigrationContext  # noqa: PLC0415 - the same

    def mine(one: SchemaItem, name: str | None, kind: str, *_rest: Any) -> bool:
        if kind == "table":
            return name in metadata.tables
        return one.info.get(ONLY_ON) in {None, connection.dialect.name}

    options = {"include_object": mine, "version_table": "-", "compare_type": True}
    here = MigrationContext.configure(connection, opts=options)
    return [str(one) for one in compare_metadata(here, metadata)]


def _option(folder: Path) -> str:
    return str(folder).replace("%", "%%")
