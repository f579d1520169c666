"""Bodies in payload stores that an entry needs of its letter before an edit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add columns, which costs no rewrite of the table; older releases leave them NULL.

    Of an edit by an older release the data before may go, once a replay of it has failed.
    """
    columns = {one["name"] for one in sa.inspect(op.get_bind()).get_columns("replay_orders")}
    for name in ("payload_uri", "payload_holder"):
        if name not in columns:
            op.add_column("replay_orders", sa.Column(name, sa.Text))
