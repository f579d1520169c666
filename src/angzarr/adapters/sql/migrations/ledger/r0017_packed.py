"""Letters are compressed by LZ4 on PostgreSQL, which takes a fifth of the time of its own way."""

from __future__ import annotations

from alembic import op

from angzarr.adapters.sql.engine.postgresql import compress_by_lz4

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Set it for letters that come; those that are there stay as they are, and are read as ever."""
    compress_by_lz4(op.get_bind(), "ledger_letters", "body")
