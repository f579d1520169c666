"""Append-only tables: the database refuses UPDATE, DELETE and TRUNCATE.

A table that is pruned has a table of one time beside it: rows before that time may be deleted, in
the transaction that wrote it there. All else is refused for good.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Table, event

#: What the database says to who tries. `{table}`: which one.
REFUSAL: Final = "{table} is append-only: rows are never changed"

_POSTGRESQL: Final = (
    """
CREATE OR REPLACE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND {allowed} THEN RETURN OLD; END IF;
  RAISE EXCEPTION '{refusal}' USING ERRCODE = 'restrict_violation';
END $$
""",
    "DROP TRIGGER IF EXISTS {table}_keep_rows ON {table}",
    """
CREATE TRIGGER {table}_keep_rows BEFORE UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION {table}_refuse()
""",
    "DROP TRIGGER IF EXISTS {table}_keep_all ON {table}",
    """
CREATE TRIGGER {table}_keep_all BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()
""",
)
_SQLITE: Final = (
    """
CREATE TRIGGER IF NOT EXISTS {table}_keep_rows BEFORE UPDATE ON {table}
BEGIN SELECT RAISE(ABORT, '{refusal}'); END
""",
    """
CREATE TRIGGER IF NOT EXISTS {table}_keep_all BEFORE DELETE ON {table} WHEN NOT ({allowed})
BEGIN SELECT RAISE(ABORT, '{refusal}'); END
""",
)


def guards(table: str, dialect: str, prunable: tuple[str, str] | None = None) -> list[str]:
    """The statements that make *table* append-only; running them again is harmless.

    *prunable*: the column of the time of a row, and the table whose only column `until` lets
    older rows be deleted. For migrations, which know tables by name.
    """
    allowed = "false" if dialect == "postgresql" else "0"
    if prunable is not None:
        column, bound = prunable
        allowed = f"EXISTS (SELECT 1 FROM {bound} WHERE OLD.{column} < until)"  # noqa: S608 - names of ours
    texts = _POSTGRESQL if dialect == "postgresql" else _SQLITE
    refusal = REFUSAL.format(table=table)
    return [text.format(table=table, allowed=allowed, refusal=refusal).strip() for text in texts]


def make_append_only(table: Table, prunable: tuple[str, str] | None = None) -> None:
    """Let *table* be append-only from its creation on (see `guards`)."""

    @event.listens_for(table, "after_create")
    def _guard(_table: Table, connection: Connection, **_: object) -> None:
        for statement in guards(table.name, connection.dialect.name, prunable):
            connection.exec_driver_sql(statement)
