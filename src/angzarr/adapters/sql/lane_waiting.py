"""What waits in lanes: kept, forgotten, lent. Whoever changes it holds the row of its lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from angzarr.adapters.sql.lane_moving import LaneMoving, set_lane, waits_at
from angzarr.adapters.sql.lane_rows import at, found_in, waiting_row
from angzarr.adapters.sql.lane_tables import ordering_lanes, ordering_waiting
from angzarr.ordering.lane import (
    Full,
    Lane,
    ParkAnswer,
    Parked,
    Place,
    Ready,
    Taken,
    Waiting,
    Why,
    replaces,
)

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_KEY: Final = ("handler", "domain", "root", "edition")
#: What is parked.
EARLY: Final = _waiting.why == Why.EARLY.value
#: That a row waits in a lane.
IN_LANE: Final = and_(*(_lanes[name] == _waiting[name] for name in _KEY))


def park(connection: Connection, moving: LaneMoving, early: Waiting, most: int) -> ParkAnswer:
    """Keep an early event, unless its lane has come to its place or is full."""
    lane = early.lane
    # What is not after the first place is not parked where there is no lane yet: it makes none.
    place = moving.hold(connection, lane, make=early.sequence > lane.first)
    if place.next_sequence >= early.sequence:
        return Ready(place.next_sequence)
    there = waits_at(connection, lane, early.sequence)
    if there is not None and there.why is Why.EARLY:
        if there.event_id != early.event_id:
            return Taken(there.event_id)
    else:
        parked = _parked(connection, lane) if place.waiting >= most else 0
        if parked >= most:
            return Full(parked)
    _put(connection, _waiting_as_long(early, there), there, place)
    return Parked()


def note(connection: Connection, moving: LaneMoving, waiting: Waiting, *, claimed: bool) -> None:
    """Keep that an event is being retried or a dead letter, unless its lane is past it."""
    lane = waiting.lane
    place = moving.hold(connection, lane, make=True)
    if place.next_sequence > waiting.sequence:
        return
    there = waits_at(connection, lane, waiting.sequence)
    if replaces(waiting, there, claimed=claimed):
        _put(connection, waiting, there, place)


def released(connection: Connection, moving: LaneMoving, early: Waiting) -> None:
    """Forget an early event; what was parked anew in its place since then stays."""
    place = moving.hold(connection, early.lane, make=False)
    same = _waiting.text.is_not_distinct_from(early.text)
    here = [*at(ordering_waiting, early.lane), _waiting.sequence == early.sequence, EARLY, same]
    if connection.execute(delete(ordering_waiting).where(*here)).rowcount:
        set_lane(connection, early.lane, waiting=place.waiting - 1)


def due(handlers: Mapping[str, str], now: datetime, limit: int) -> Select[Any]:
    """Return the question what nobody has of the events whose turn has come."""
    # That it has come is said in the words of the index, which has nothing else.
    free = and_(_waiting.lent_until.is_not(None), _waiting.lent_until <= now)
    return (
        select(ordering_waiting, _lanes.first_sequence)
        .join(ordering_lanes, IN_LANE)
        .where(_waiting.handler.in_(list(handlers)), free)
        .order_by(_waiting.since, _waiting.sequence)
        .limit(limit)
    )


def lend(
    connection: Connection, handlers: Mapping[str, str], now: datetime, lease: timedelta, limit: int
) -> list[Waiting]:
    """Lend what is due; on PostgreSQL, what another one is just being lent is passed over."""
    wanted = due(handlers, now, limit).with_for_update(of=ordering_waiting, skip_locked=True)
    rows = connection.execute(wanted).mappings().all()
    if rows:
        names = (*_KEY, "sequence")
        here = [_waiting[name] == bindparam(f"k_{name}") for name in names]
        lent = update(ordering_waiting).where(*here).values(lent_until=now + lease)
        connection.execute(lent, [{f"k_{name}": row[name] for name in names} for row in rows])
    return [found_in(row, handlers) for row in rows]


def _waiting_as_long(early: Waiting, there: Waiting | None) -> Waiting:
    """Return *early* as one that waits since the first time that it came."""
    if there is None or there.why is not Why.EARLY or there.since >= early.since:
        return early
    return replace(early, since=there.since)


def _put(connection: Connection, waiting: Waiting, there: Waiting | None, place: Place) -> None:
    row = waiting_row(waiting)
    if there is None:
        connection.execute(insert(ordering_waiting), row)
        set_lane(connection, waiting.lane, waiting=place.waiting + 1)
    else:
        here = [*at(ordering_waiting, waiting.lane), _waiting.sequence == waiting.sequence]
        connection.execute(update(ordering_waiting).where(*here).values(row))


def _parked(connection: Connection, lane: Lane) -> int:
    wanted = select(func.count()).select_from(ordering_waiting)
    return int(connection.scalar(wanted.where(*at(ordering_waiting, lane), EARLY)) or 0)
