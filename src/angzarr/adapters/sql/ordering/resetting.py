"""Lanes that a person or a rebuild moves: on to a place, or back to the beginning."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, exists, update

from angzarr.adapters.sql.ordering.checkpoints import clear
from angzarr.adapters.sql.ordering.moving import LaneMoving, set_lane
from angzarr.adapters.sql.ordering.tables import (
    AT_ONCE,
    at,
    name_key,
    ordering_lanes,
    ordering_waiting,
)
from angzarr.adapters.sql.ordering.waiting import EARLY, IN_LANE
from angzarr.ordering.lane import Lane, Place

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c


def skip_to(
    connection: Connection, moving: LaneMoving, lane: Lane, sequence: int, now: datetime
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
