"""Sequences of events whose command was rejected, up to those of the wire."""

from __future__ import annotations

from angzarr.adapters.sql.migrations.widening import widen

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Widen them; older releases read and write them as before."""
    widen({"rejected_commands": ("source_sequence",)})
