"""The tables of configurations: rows are added, never changed or removed; the database refuses it.

`migrations/config` leads to these tables: a change here needs a revision there.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import DDL, Boolean, Column, Integer, MetaData, Table, Text, UniqueConstraint, event

from angzarr.adapters.sql.engine.schema import Schema, version_table
from angzarr.adapters.sql.ledger.column_types import UtcTime

METADATA = MetaData()

#: The revision of the tables below.
HEAD: Final = "0001"


def _act() -> tuple[Column[Any], ...]:
    return (
        Column("author", Text, nullable=False),
        Column("at", UtcTime, nullable=False),
        Column("note", Text, nullable=False),
    )


#: One row a version. `value` and `schema` are canonical JSON in ASCII.
configuration_versions = Table(
    "configuration_versions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    # Counts the versions of one id, from 1.
    Column("number", Integer, nullable=False),
    Column("value", Text, nullable=False),
    Column("schema", Text),
    *_act(),
    UniqueConstraint("id", "number", name="uq_configuration_versions_number"),
)

#: One row each time that a version became the current one. The last row of an id is in force.
configuration_choices = Table(
    "configuration_choices",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("version", Text, nullable=False),
    # True: it was put. False: a person chose it afterwards.
    Column("put", Boolean, nullable=False),
    *_act(),
)

config_version = version_table("config", METADATA)

CONFIG: Final = Schema(
    name="config",
    called="the database of configurations",
    metadata=METADATA,
    head=HEAD,
    first=(configuration_versions, configuration_choices),
    cure="angzarr database upgrade config",
    setting="configuration.migrate",
    waiting="events that read a configuration",
)


def _ddl(statement: str) -> DDL:
    made: DDL = DDL(statement)  # type: ignore[no-untyped-call]
    return made


#: One function for all tables; `RAISE` takes no name but by a parameter.
_FUNCTION: Final = _ddl(
    "CREATE OR REPLACE FUNCTION angzarr_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$"
    " BEGIN RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only'; END $$"
)


def _guard(table: Table) -> None:
    """Let the database refuse every change of a row of *table*."""
    name = table.name
    for verb in ("UPDATE", "DELETE"):
        refusal = _ddl(
            f"CREATE TRIGGER {name}_no_{verb.lower()} BEFORE {verb} ON {name}"
            f" BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"
        )
        event.listen(table, "after_create", refusal.execute_if(dialect="sqlite"))
    trigger = _ddl(
        f"CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name}"
        " FOR EACH STATEMENT EXECUTE FUNCTION angzarr_refuse_change()"
    )
    for statement in (_FUNCTION, trigger):
        event.listen(table, "after_create", statement.execute_if(dialect="postgresql"))


for _table in (configuration_versions, configuration_choices):
    _guard(_table)
