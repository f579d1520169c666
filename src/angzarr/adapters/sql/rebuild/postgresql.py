"""A green space on PostgreSQL: a schema beside the live one, which search_path names first.

All of it is transactional: its making, its batches, and the switch-over with its removal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Engine, RowMapping, func, select, text

from angzarr.adapters.sql.engine.engine import patient
from angzarr.adapters.sql.ordering.runs import shut
from angzarr.adapters.sql.rebuild.progress import METADATA, SPACE
from angzarr.adapters.sql.rebuild.space import Layout, Space, in_hand, in_the_way, no_table
from angzarr.errors import RebuildError
from angzarr.projections.shadow_table import Plan

#: Characters of a name, to PostgreSQL.
_LONGEST: Final = 63

#: How long writers are kept waiting for those that are amid a transaction.
_LOCK_TIMEOUT: Final = "2s"

#: When the server looks whether a silent machine is there, in seconds, and how often.
_KEEPALIVES: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

_TABLE: Final = text(
    "SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) AS name"
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = to_regclass(quote_ident(:name))"
)
_COLUMNS: Final = text(
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,"
    " a.attidentity, a.attgenerated, coalesce(pg_get_expr(d.adbin, d.adrelid), '') AS initial"
    " FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
    " WHERE a.attrelid = :oid AND a.attrelid = to_regclass(:name)"
    " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)
#: Foreign keys from elsewhere that would not let all rows be replaced, or go with them.
_IN_THE_WAY: Final = text(
    "SELECT conname, conrelid::regclass::text AS source, confrelid::regclass::text AS target"
    " FROM pg_constraint WHERE contype = 'f' AND confrelid = ANY(:oids)"
    " AND conrelid <> ALL(:oids) AND NOT (condeferrable AND confdeltype = 'a')"
    " AND conparentid = 0 LIMIT 1"
)
_FOREIGN_KEYS: Final = text(
    "SELECT conrelid, confrelid, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
    " WHERE contype = 'f' AND confrelid = ANY(:oids) AND conrelid = ANY(:oids) AND conparentid = 0"
)
_STRAYS: Final = text(
    "SELECT format('%I.%I', schemaname, relname), n_tup_ins + n_tup_upd + n_tup_del"
    " FROM pg_stat_xact_user_tables"
    " WHERE schemaname <> :schema AND schemaname NOT LIKE 'pg_temp%'"
    " AND n_tup_ins + n_tup_upd + n_tup_del > 0"
)


class PostgresqlSpace(Space):
    """A space in the schema ``angzarr_rebuild_<projection>`` of *engine*'s database."""

    def __init__(self, engine: Engine, plan: Plan, *, in_place: bool = False) -> None:
        super().__init__(plan, in_place=in_place)
        self._engine = engine
        self._live: dict[str, RowMapping] = {}
        #: Whether the connection may count what it wrote to live tables and was undone, and that.
        self._lingers, self._undone = False, dict[str, int]()

    def enter(self) -> None:
        """Connect, and take the projection's lock for as long as the connection lives."""
        slow = self._held.enter_context(patient(self._engine))
        self.connection = self._held.enter_context(slow.connect())
        self._schema = schema_of(self.plan.projection)
        self.connection.execution_options(schema_translate_map={SPACE: self._schema})
        with self.connection.begin():
            ours = select(func.pg_try_advisory_lock(_lock_of(self.plan.handler)))
            if not self.connection.scalar(ours):
                raise RebuildError(in_hand(self.plan))
            self._before = self.connection.scalar(select(func.current_setting("search_path")))
            # The locks of a rebuild whose machine is gone are to be let go soon.
            for name, value in _KEEPALIVES.items():
                self.connection.execute(select(func.set_config(name, value, False)))  # noqa: FBT003 - of SQL

    def exists(self) -> bool:
        """True if the schema is there."""
        known = text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
        return self.connection.execute(known, {"schema": self._schema}).first() is not None

    def layouts(self) -> Sequence[Layout]:
        """The live tables, found by search_path."""
        for name in self.plan.tables:
            row = self.connection.execute(_TABLE, {"name": name}).mappings().first()
            if row is None or row["relkind"] not in {"r", "p"}:
                raise RebuildError(no_table(self.plan, name))
            self._live[name] = row
        found = self.connection.execute(_IN_THE_WAY, {"oids": self._oids()}).mappings().first()
        if found is not None:
            raise RebuildError(in_the_way(found["source"], found["target"], found["conname"]))
        return [self.layout(name) for name in self.plan.tables]

    def layout(self, name: str) -> Layout:
        """The live table; where its name leads to another one by now, it has no columns."""
        aimed = self.connection.scalar(select(func.current_setting("search_path")))
        self._search(self._before, local=True)  # types and defaults are said by it
        found: Any = self.connection.execute(_COLUMNS, dict(self._live[name]))
        rows = found.mappings().all()
        self._search(aimed, local=True)
        own = [row for row in rows if not row["attgenerated"]]
        numbered = (
            row["attname"] for row in own
            if row["attidentity"] or row["initial"].startswith("nextval(")
        )  # fmt: skip
        return Layout(
            name,
            tuple(row["attname"] for row in own),
            frozenset(numbered),
            f"{self.live(name)} {[tuple(row.values()) for row in rows]}",
        )

    def make(self) -> None:
        """Make the schema, and tables as the live ones are, with the foreign keys among them."""
        self.run(f"CREATE SCHEMA {self.quoted(self._schema)}")
        for name in self.plan.tables:
            self.run(f"CREATE TABLE {self.green(name)} (LIKE {self.live(name)} INCLUDING ALL)")
        self.run("SET LOCAL search_path TO ''")  # definitions then name the schema
        names = {self._live[name]["oid"]: name for name in self.plan.tables}
        for row in self.connection.execute(_FOREIGN_KEYS, {"oids": self._oids()}):
            child, parent = names[row.conrelid], names[row.confrelid]
            there = row.definition.replace(
                f"REFERENCES {self.live(parent)}(", f"REFERENCES {self.green(parent)}("
            )
            self.run(f"ALTER TABLE {self.green(child)} ADD {there}")
        self._search(self._before, local=True)
        METADATA.create_all(self.connection, checkfirst=False)

    def aim(self) -> None:
        """Let search_path begin with the schema.

        What a crash of the server takes of the last batches, it takes with their places.
        """
        with self.connection.begin():
            if not self.in_place:
                path = filter(None, (self.quoted(self._schema), self._before))
                self._search(", ".join(path), local=False)
            self.run("SET synchronous_commit TO off")

    def watch(self) -> None:
        """Remember what is counted before anything is written, if that can be anything."""
        if self._lingers:
            self._undone = self._written()

    def strays(self) -> str:
        """Name a table of another schema that the transaction has written to."""
        written = self._written().items()
        return next((name for name, rows in written if rows > self._undone.get(name, 0)), "")

    def denied(self) -> str:
        """Nothing: what was written is looked at afterwards."""
        return ""

    def exclusive(self, *, on: bool) -> None:
        """Do nothing: any transaction may lock what it likes."""

    def writable(self, *, on: bool) -> None:
        """Do nothing: what was written is looked at afterwards, by `strays`."""

    def hold_still(self) -> None:
        """Let all statements of the transaction read what the first one does."""
        self.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def outlive_crashes(self) -> None:
        """Let the server write its log before it says that it has committed."""
        self.run("SET LOCAL synchronous_commit TO DEFAULT")

    def lock(self, tables: Sequence[str]) -> None:
        """Shut the gate to runs, then lock out writers; both wait for those that are under way."""
        self.run(f"SET LOCAL lock_timeout TO '{_LOCK_TIMEOUT}'")
        self.run("SET LOCAL statement_timeout TO 0")  # however much there is to copy
        self.outlive_crashes()
        shut(self.connection, self.plan.handler)
        self._lingers = True
        if tables:
            listed = ", ".join(map(self.live, tables))
            self.run(f"LOCK TABLE {listed} IN EXCLUSIVE MODE")
            self.run("SET CONSTRAINTS ALL DEFERRED")

    def renumber(self, table: Layout) -> None:
        """Set sequences of identity columns on; serial ones are shared with the green table."""
        for column in table.numbered:
            self.connection.execute(
                text(
                    "SELECT setval(s.name, m.most) FROM"  # noqa: S608 - quoted
                    f" (SELECT max({self.quoted(column)}) AS most FROM {self.live(table.name)}) m,"
                    " (SELECT pg_get_serial_sequence(:table, :column)::regclass AS name) s"
                    " WHERE m.most > coalesce(pg_sequence_last_value(s.name), 0)"
                ),
                {"table": self.live(table.name), "column": column},
            )

    def check(self, table: Layout) -> None:
        """Do nothing: the commit checks what was deferred."""

    def remove(self) -> None:
        """Drop the schema."""
        self.run(f"DROP SCHEMA {self.quoted(self._schema)} CASCADE")

    def removed(self) -> None:
        """Do nothing: the schema went with the commit."""

    def live(self, table: str) -> str:
        """The table that search_path led to."""
        return str(self._live[table]["name"])

    def green(self, table: str) -> str:
        """The table in the schema."""
        return f"{self.quoted(self._schema)}.{self.quoted(table)}"

    def _written(self) -> dict[str, int]:
        """The rows of tables of other schemas that the connection counts as written.

        These are rows of this transaction, and of earlier ones that it has not reported yet.
        """
        found = self.connection.execute(_STRAYS, {"schema": self._schema})
        return {name: int(rows) for name, rows in found}

    def _search(self, path: str | None, *, local: bool) -> None:
        self.connection.execute(select(func.set_config("search_path", path, local)))

    def _oids(self) -> list[int]:
        return [row["oid"] for row in self._live.values()]


def schema_of(projection: str) -> str:
    """The name of the schema for the rebuild of *projection*."""
    name = f"angzarr_rebuild_{projection}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[:46]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _lock_of(handler: str) -> int:
    digest = hashlib.sha256(f"angzarr rebuild {handler}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
