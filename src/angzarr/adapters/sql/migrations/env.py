"""Run revisions on the connection that the caller holds; Alembic loads this file by its path."""

from __future__ import annotations

from alembic import context

from angzarr.adapters.sql.ledger_tables import METADATA, VERSION_TABLE


def run() -> None:
    """Run what Alembic's command asks for, each revision in a transaction of its own."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
