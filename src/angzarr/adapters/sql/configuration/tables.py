"""The tables of configurations: rows are added, never changed or removed; the database refuses it.

`migrations/config` leads to these tables: a change here needs a revision there.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Boolean, Column, Integer, MetaData, Table, Text, UniqueConstraint

from angzarr.adapters.sql.engine.append_only import make_append_only
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


for _table in (configuration_versions, configuration_choices):
    make_append_only(_table)
