"""Versions of configurations and which of them were current, as they were first."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from angzarr.adapters.sql.engine.append_only import guards

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
    for table in _TABLES:
        for statement in guards(table, op.get_bind().dialect.name):
            op.execute(statement)


def _act() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
