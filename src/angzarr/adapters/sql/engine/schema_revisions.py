"""Revisions of a schema, run and compared by Alembic, which is imported only where that is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, MetaData
from sqlalchemy.schema import SchemaItem

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
    """Return how tables differ from those of *metadata*, in Alembic's words."""
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
