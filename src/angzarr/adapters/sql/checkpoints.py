"""Checkpoints in SQL: the sums of what the threads of a fleet counted beside the lanes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from sqlalchemy import Connection, Engine, RowMapping, select, text

from angzarr.adapters.sql.book_rows import to_text
from angzarr.adapters.sql.checkpoint_counting import clear
from angzarr.adapters.sql.engine import in_transaction, reading
from angzarr.adapters.sql.lane_rows import name_key
from angzarr.adapters.sql.lane_schema import ORDERING
from angzarr.adapters.sql.lane_tables import projection_checkpoints
from angzarr.adapters.sql.schema import Readiness
from angzarr.projections.checkpoint import Checkpoint, Checkpoints

_here = projection_checkpoints.c


class SqlCheckpoints(Checkpoints):
    """Checkpoints in the table ``projection_checkpoints``.

    It is made or, unless *migrate* is False, upgraded before the first use. *close* lets the
    engine go.
    """

    def __init__(
        self, engine: Engine, *, close: Callable[[], None] | None = None, migrate: bool = True
    ) -> None:
        self._engine = engine
        self._close = close or engine.dispose
        self._prepare = Readiness(ORDERING, engine, migrate=migrate)

    def get(self, projection: str, /) -> Checkpoint | None:
        """Return the checkpoint of *projection*."""
        slots = self._slots(projection)
        return _sum(slots) if slots else None

    def by_type(self, projection: str, /) -> Mapping[str, Checkpoint]:
        """Return one for each type of event."""
        types: dict[str, list[Checkpoint]] = {}
        for one in self._slots(projection):
            types.setdefault(one.last_event_type, []).append(one)
        return {name: _sum(slots) for name, slots in types.items()}

    def update(self, projection: str, checkpoint: Checkpoint, /) -> None:
        """Set the checkpoint to exactly *checkpoint*."""
        row = {
            "projection": name_key(projection),
            "event_type": name_key(checkpoint.last_event_type),
            "slot": 0,
            "last_event_id": to_text(checkpoint.last_event_id),
            "last_event_type": to_text(checkpoint.last_event_type),
            "last_processed_at": checkpoint.last_processed_at,
            "events_processed": checkpoint.events_processed,
        }

        def step(connection: Connection) -> None:
            _alone(connection)
            clear(connection, projection)
            connection.execute(projection_checkpoints.insert(), row)

        self._write(step)

    def reset(self, projection: str, /) -> None:
        """Clear it."""
        self._write(lambda connection: clear(connection, projection))

    def close(self) -> None:
        """Let the connections go."""
        self._close()

    def _slots(self, projection: str) -> list[Checkpoint]:
        wanted = select(projection_checkpoints).where(_here.projection == name_key(projection))
        self._prepare()
        rows = in_transaction(
            reading(self._engine), lambda connection: connection.execute(wanted).mappings().all()
        )
        return [_slot_in(row) for row in rows]

    def _write(self, step: Callable[[Connection], None]) -> None:
        self._prepare()
        in_transaction(self._engine, step)


def _alone(connection: Connection) -> None:
    """Let nobody count until the transaction ends: what another one adds unseen would be kept."""
    if connection.dialect.name == "postgresql":
        table = projection_checkpoints.name
        connection.execute(text(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))


def _slot_in(row: RowMapping) -> Checkpoint:
    return Checkpoint(
        last_event_id=json.loads(row["last_event_id"]),
        last_event_type=json.loads(row["last_event_type"]),
        last_processed_at=row["last_processed_at"],
        events_processed=row["events_processed"],
    )


def _sum(slots: Sequence[Checkpoint]) -> Checkpoint:
    last = max(slots, key=attrgetter("last_processed_at"))
    return replace(last, events_processed=sum(one.events_processed for one in slots))
