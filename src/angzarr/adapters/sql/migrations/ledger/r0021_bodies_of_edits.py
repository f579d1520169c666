"""Bodies in payload stores: which one an entry needs of its letter before an edit; next holders."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_NEW: Final = (
    ("replay_orders", "payload_uri"),
    ("replay_orders", "payload_holder"),
    ("ledger_released_payloads", "next_holder"),
)


def upgrade() -> None:
    """Add columns, which costs no rewrite of a table; older releases leave them NULL.

    Of an edit by an older release the data before may go, once a replay of it has failed. Holds of
    letters have their day in their names now. A letter that one release puts, and the other one
    files, is held until `payloads.keep` is over.
    """
    inspector = sa.inspect(op.get_bind())
    for table, name in _NEW:
        if name not in {one["name"] for one in inspector.get_columns(table)}:
            op.add_column(table, sa.Column(name, sa.Text))
