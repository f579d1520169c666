"""What waits in lanes that moved without it: what is past is forgotten, and what has come is due.

A rebuild moves lanes by the thousand. A keeper asks at times whether any event was overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, case, delete, func, literal, select, tuple_, update

from angzarr.adapters.sql.bulk import as_table
from angzarr.adapters.sql.lane_rows import AT_ONCE
from angzarr.adapters.sql.lane_tables import ordering_lanes, ordering_waiting
from angzarr.adapters.sql.lane_waiting import EARLY, IN_LANE

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_KEY: Final = ("handler", "domain", "root", "edition")
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
    """Return the keys of lanes that are at a parked event, or past it, which is not due."""
    keys = [_waiting[name] for name in _KEY]
    mine = [_waiting.handler.in_(list(handlers)), EARLY, _waiting.lent_until.is_(None)]
    found = select(*keys).distinct().where(*mine, _waiting.sequence <= _PLACE).limit(limit)
    return connection.execute(found).all()
