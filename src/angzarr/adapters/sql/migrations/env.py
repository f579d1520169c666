"""Run revisions on the connection that the caller holds; Alembic loads this file by its path."""

from __future__ import annotations

from alembic import context


def run() -> None:
    """Run what Alembic's command asks for, each revision in a transaction of its own."""
    said = context.config.attributes
    context.configure(
        connection=said["connection"],
        target_metadata=said["metadata"],
        version_table=said["version_table"],
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
