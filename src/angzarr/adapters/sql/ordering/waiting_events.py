"""Events that wait in lanes: kept, forgotten, lent. Each change holds the row of its lane.

A rebuild moves lanes by the thousand, a person moves one. Past events are then forgotten, and
arrived ones are due. A keeper looks for overlooked events at times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from angzarr.adapters.sql.engine.statements import as_table
from angzarr.adapters.sql.ordering.checkpoints import clear
from angzarr.adapters.sql.ordering.moves import LaneMoves, set_lane, waits_at
from angzarr.adapters.sql.ordering.tables import (
    AT_ONCE,
    at,
    found_in,
    name_key,
    ordering_lanes,
    ordering_waiting,
    waiting_row,
)
from angzarr.ordering.lane import (
    Full,
    Lane,
    ParkAnswer,
    ParkedInLane,
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


def park(connection: Connection, moving: LaneMoves, early: Waiting, most: int) -> ParkAnswer:
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
    return ParkedInLane()


def note(connection: Connection, moving: LaneMoves, waiting: Waiting, *, claimed: bool) -> None:
    """Keep that an event is being retried or a dead letter, unless its lane is past it."""
    lane = waiting.lane
    place = moving.hold(connection, lane, make=True)
    if place.next_sequence > waiting.sequence:
        return
    there = waits_at(connection, lane, waiting.sequence)
    if replaces(waiting, there, claimed=claimed):
        _put(connection, waiting, there, place)


def released(connection: Connection, moving: LaneMoves, early: Waiting) -> None:
    """Forget an early event; what was parked anew in its place since then stays."""
    place = moving.hold(connection, early.lane, make=False)
    same = _waiting.text.is_not_distinct_from(early.text)
    here = [*at(ordering_waiting, early.lane), _waiting.sequence == early.sequence, EARLY, same]
    if connection.execute(delete(ordering_waiting).where(*here)).rowcount:
        set_lane(connection, early.lane, waiting=place.waiting - 1)


def due(handlers: Mapping[str, str], now: datetime, limit: int) -> Select[Any]:
    """The question for events whose turn has come and that are not lent."""
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
    """*early* as one that waits since the first time that it came."""
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


#: Where the lane of a row is that waits; what waits is few, so it is asked of each.
_PLACE: Final = select(_lanes.next_sequence).where(IN_LANE).scalar_subquery()


def settle(connection: Connection, lanes: Sequence[Any]) -> None:
    """Settle what waits in these *lanes*, each the key of one, and hold them.

    Nothing else is touched: what is just being parked elsewhere would be counted too low.
    """
    if not lanes:
        return
    keys = [_lanes[name] for name in _KEY]
    given = as_table(connection.dialect, "given", keys, lanes)
    known = select(*(given.c[name] for name in _KEY))
    # By key, as two that settle would else wait for each other.
    held = select(_lanes.next_sequence).where(tuple_(*keys).in_(known)).order_by(*keys)
    connection.execute(held.with_for_update()).all()
    mine = tuple_(*(_waiting[name] for name in _KEY)).in_(known)
    connection.execute(delete(ordering_waiting).where(mine, ~EARLY, _waiting.sequence < _PLACE))
    at_once = func.coalesce(_waiting.lent_until, literal(AT_ONCE, _waiting.lent_until.type))
    come = case((_waiting.sequence <= _PLACE, at_once), else_=None)
    connection.execute(update(ordering_waiting).where(mine, EARLY).values(lent_until=come))
    left = select(func.count()).select_from(ordering_waiting).where(IN_LANE).scalar_subquery()
    connection.execute(update(ordering_lanes).where(tuple_(*keys).in_(known)).values(waiting=left))


def overlooked(connection: Connection, handlers: Mapping[str, str], limit: int) -> Sequence[Any]:
    """The keys of lanes that are at a parked event, or past it, which is not due."""
    keys = [_waiting[name] for name in _KEY]
    mine = [_waiting.handler.in_(list(handlers)), EARLY, _waiting.lent_until.is_(None)]
    found = select(*keys).distinct().where(*mine, _waiting.sequence <= _PLACE).limit(limit)
    return connection.execute(found).all()


def skip_to(
    connection: Connection, moving: LaneMoves, lane: Lane, sequence: int, now: datetime
) -> Place:
    """Move *lane* on to *sequence*, forget what is past but parked, and mark that as due."""
    place = moving.hold(connection, lane, make=sequence > lane.first)
    if sequence <= place.next_sequence:
        return place
    here = at(ordering_waiting, lane)
    past = delete(ordering_waiting).where(*here, ~EARLY, _waiting.sequence < sequence)
    left = place.waiting - connection.execute(past).rowcount
    come = [*here, EARLY, _waiting.sequence <= sequence, _waiting.lent_until.is_(None)]
    connection.execute(update(ordering_waiting).where(*come).values(lent_until=AT_ONCE))
    set_lane(connection, lane, next_sequence=sequence, waiting=left, moved_at=now)
    return Place(sequence, left)


def reset(connection: Connection, handler: str) -> int:
    """Let all lanes of *handler* begin anew; those in which something waits keep it.

    Others go on meanwhile. A lane in which nothing waited may get something before it is come to,
    and one in which something waited may get rid of it. So what is left by the first step is
    begun anew whatever waits in it, and held; and what is empty of it then goes as well.
    """
    mine = _lanes.handler == name_key(handler)
    empty = delete(ordering_lanes).where(mine, _lanes.waiting == 0)
    anew = update(ordering_lanes).where(mine)
    gone = connection.execute(empty).rowcount
    begun = connection.execute(
        anew.values(next_sequence=_lanes.first_sequence, moved_at=None, sent_place=None)
    )
    connection.execute(empty)
    early = update(ordering_waiting).where(_waiting.handler == name_key(handler), EARLY)
    here = [IN_LANE, _lanes.moved_at.is_(None)]
    ahead = early.where(_waiting.lent_until.is_not(None), exists().where(*here))
    connection.execute(ahead.values(lent_until=None))
    come = early.where(exists().where(*here, _lanes.next_sequence >= _waiting.sequence))
    connection.execute(come.values(lent_until=AT_ONCE))
    clear(connection, handler)
    return gone + begun.rowcount
