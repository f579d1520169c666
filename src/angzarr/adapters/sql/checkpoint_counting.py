"""How whoever moves a lane counts there, in one statement that holds its row to the commit."""

from __future__ import annotations

import threading
from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, case, delete
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.book_rows import to_text
from angzarr.adapters.sql.lane_rows import name_key
from angzarr.adapters.sql.lane_tables import projection_checkpoints
from angzarr.ordering.lane import Step

_here = projection_checkpoints.c
_LAST: Final = ("last_event_id", "last_event_type", "last_processed_at")
#: How many rows one type of event has at most: more threads than this seldom commit at once.
_SLOTS: Final = 64

#: Column → the parameter with its value; columns' own names are SQLAlchemy's in an INSERT.
COUNTED: Final = {name: bindparam(f"c_{name}", type_=_here[name].type) for name in _here.keys()}  # noqa: SIM118 - no dict


def counted_row(step: Step) -> dict[str, Any]:
    """Return the parameters with which *step* is counted."""
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


def insert_into(engine: Engine) -> Any:
    """Return an INSERT of checkpoints that can be told what to do where there is a row."""
    insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert
    return insert(projection_checkpoints)


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
    """Return where this thread counts. Threads of a machine have numbers of their own."""
    return threading.get_native_id() % _SLOTS
