"""The schema of lanes, what waits in them, and checkpoints."""

from __future__ import annotations

from typing import Final

from angzarr.adapters.sql.lane_tables import HEAD, METADATA, ordering_lanes
from angzarr.adapters.sql.schema import Schema

ORDERING: Final = Schema(
    name="ordering",
    called="the database of the order of events",
    metadata=METADATA,
    head=HEAD,
    first=(ordering_lanes,),
    cure="angzarr database upgrade ordering",
    setting="ordering.migrate",
)
