"""Bodies in payload stores: which one a letter holds, and those that no letter holds any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add columns, which costs no rewrite of the table, and the table; older releases leave NULL.

    Bodies of letters that an older release filed are held until `payloads.keep` is over.
    """
    columns = {one["name"] for one in sa.inspect(op.get_bind()).get_columns("ledger_letters")}
    for name in ("payload_uri", "payload_holder"):
        if name not in columns:
            op.add_column("ledger_letters", sa.Column(name, sa.Text))
    op.create_table(
        "ledger_released_payloads",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
