"""Checkpoints in SQL: the sums of what the threads of a fleet counted beside the lanes.

A move counts in one statement, which holds its row until the commit.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Engine, RowMapping, bindparam, case, delete, select, text

from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.event_store.tables import to_text
from angzarr.adapters.sql.ordering.tables import ORDERING, name_key, projection_checkpoints
from angzarr.ordering.lane import Step
from angzarr.projections.checkpoint import Checkpoint, Checkpoints

_LAST: Final = ("last_event_id", "last_event_type", "last_processed_at")
#: How many rows one type of event has at most: more threads than this seldom commit at once.
_SLOTS: Final = 64

_here = projection_checkpoints.c

#: Column → the parameter with its value; columns' own names are SQLAlchemy's in an INSERT.
COUNTED: Final = {name: bindparam(f"c_{name}", type_=_here[name].type) for name in _here.keys()}  # noqa: SIM118 - no dict


def counted_row(step: Step) -> dict[str, Any]:
    """The parameters with which *step* is counted."""
    row = {
        "projection": name_key(step.lane.handler),
        "event_type": name_key(step.event_type),
        "slot": slot(),
        "last_event_id": to_text(step.event_id),
        "last_event_type": to_text(step.event_type),
        "last_processed_at": step.at,
        "events_processed": 1,
    }
    return {COUNTED[name].key: value for name, value in row.items()}


def added(statement: Any) -> Any:
    """Let the INSERT *statement* add to the row that is there; what was processed last stays."""
    new = statement.excluded
    later = new.last_processed_at >= _here.last_processed_at
    sums = {"events_processed": _here.events_processed + new.events_processed}
    last = {name: case((later, new[name]), else_=_here[name]) for name in _LAST}
    keys = [_here.projection, _here.event_type, _here.slot]
    return statement.on_conflict_do_update(index_elements=keys, set_=sums | last)


def clear(connection: Connection, projection: str) -> None:
    """Forget what *projection* has processed."""
    mine = _here.projection == name_key(projection)
    connection.execute(delete(projection_checkpoints).where(mine))


def slot() -> int:
    """The slot in which this thread counts. Threads of a machine have numbers of their own."""
    return threading.get_native_id() % _SLOTS


class SqlCheckpoints(Checkpoints):
    """Checkpoints in the table ``projection_checkpoints``.

    It is made or, unless *migrate* is False, upgraded before the first use. *close* lets the
    engine go.
    """

    def __init__(
        self, engine: Engine, *, close: Callable[[], None] | None = None, migrate: bool = True
    ) -> None:
        self._database = SchemaDatabase(ORDERING, engine, migrate=migrate, close=close)

    def get(self, projection: str, /) -> Checkpoint | None:
        """The checkpoint of *projection*."""
        slots = self._slots(projection)
        return _sum(slots) if slots else None

    def by_type(self, projection: str, /) -> Mapping[str, Checkpoint]:
        """One for each type of event."""
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

        self._database.write(step)

    def reset(self, projection: str, /) -> None:
        """Clear it."""
        self._database.write(lambda connection: clear(connection, projection))

    def close(self) -> None:
        """Let the connections go."""
        self._database.close()

    def _slots(self, projection: str) -> list[Checkpoint]:
        wanted = select(projection_checkpoints).where(_here.projection == name_key(projection))
        rows = self._database.read(lambda connection: connection.execute(wanted).mappings().all())
        return [_slot_in(row) for row in rows]


def _alone(connection: Connection) -> None:
    """Keep others from counting until the transaction ends: what they add unseen would be kept."""
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
