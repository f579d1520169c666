"""Sequences up to those of the wire, which do not fit into four bytes with a sign."""

from __future__ import annotations

from angzarr.adapters.sql.migrations.widening import widen

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Widen them; older releases read and write them as before."""
    widen(
        {
            "ordering_lanes": ("first_sequence", "next_sequence", "sent_place"),
            "ordering_waiting": ("sequence",),
        }
    )
