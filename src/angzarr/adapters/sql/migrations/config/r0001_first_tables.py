"""Versions of configurations and which of them were current, as they were first."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TABLES = ("configuration_versions", "configuration_choices")


def upgrade() -> None:
    """Make them, and let the database refuse every change of a row."""
    op.create_table(
        "configuration_versions",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("id", "version")),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("schema", sa.Text),
        *_act(),
        sa.UniqueConstraint("id", "number", name="uq_configuration_versions_number"),
    )
    op.create_table(
        "configuration_choices",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("put", sa.Boolean, nullable=False),
        *_act(),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION angzarr_refuse_change() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only';"
            " END $$"
        )
    for table in _TABLES:
        _guard(table)


def _guard(table: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION angzarr_refuse_change()"
        )
        return
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}"
            f" BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )


def _act() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
