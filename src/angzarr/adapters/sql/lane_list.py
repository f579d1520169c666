"""Which handlers have lanes, and which of these stand, a page at a time; nothing is locked."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    func,
    null,
    select,
    tuple_,
)

from angzarr.adapters.sql.book_rows import address_in
from angzarr.adapters.sql.lane_rows import name_key, waiting_of
from angzarr.adapters.sql.lane_tables import ordering_lanes, ordering_waiting
from angzarr.adapters.sql.lane_waiting import IN_LANE
from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Known, Lane, Standing, Why

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_later, _first = ordering_waiting.alias("later"), ordering_waiting.alias("first")
_KEY: Final = ("handler", *Address._fields)
_WAITS: Final = ("sequence", "why", "since", "event_id", "event_type", "letter_id", "due_at")
_ADDRESS: Final = [_waiting[name] for name in Address._fields]


def standing(
    connection: Connection, handler: str, after: Address | None, limit: int, *, blocked: bool
) -> list[Standing]:
    """Return lanes of *handler* in which something waits, by address."""
    asked = _blocked(handler) if blocked else _any(handler)
    if after is not None:
        asked = asked.where(tuple_(*_ADDRESS) > tuple_(*after))
    page = asked.order_by(*_ADDRESS).limit(limit).subquery("page")
    first = (
        select(func.min(_later.c.sequence))
        .where(*(_later.c[name] == _lanes[name] for name in _KEY))
        .where(_later.c.sequence >= _lanes.next_sequence)
        .scalar_subquery()
    )
    here = and_(*(_lanes[name] == page.c[name] for name in _KEY))
    same = and_(*(_first.c[name] == _lanes[name] for name in _KEY), _first.c.sequence == first)
    told = select(
        *(_lanes[name] for name in (*_KEY, "first_sequence", "next_sequence")),
        _lanes.waiting.label("count"),
        *(_first.c[name] for name in _WAITS),
        null().label("text"),
    ).select_from(page.join(ordering_lanes, here).outerjoin(_first, same))
    rows = connection.execute(told.order_by(*(page.c[name] for name in Address._fields)))
    return [_standing(row, handler) for row in rows.mappings()]


def _any(handler: str) -> Select[Any]:
    """Return the question which lanes something waits in: one walk along the key of what waits."""
    names = (_waiting[name] for name in _KEY)
    return select(*names).distinct().where(_waiting.handler == name_key(handler))


def _blocked(handler: str) -> Select[Any]:
    """Return the question which lanes letters hold up, in words that begin at their index."""
    mine = _waiting.handler.concat("") == name_key(handler)
    return (
        select(*(_waiting[name] for name in _KEY))
        .join(ordering_lanes, and_(IN_LANE, _lanes.next_sequence == _waiting.sequence))
        .where(mine, _waiting.letter_id.is_not(None), _waiting.letter_id >= "")
        .where(_waiting.why == Why.DEAD_LETTER.value)
    )


def known(connection: Connection) -> list[Known]:
    """Return the handlers that have lanes: each question seeks the next domain, or handler."""
    found: dict[str, Known] = {}
    row = _seek(connection)
    while row is not None:
        handler = _name_of(row.handler)
        if handler is not None:
            there = found.get(handler, Known(handler, frozenset(), row.first_sequence))
            found[handler] = there._replace(domains=there.domains | {row.domain})
        more = _seek(connection, _lanes.handler == row.handler, _lanes.domain > row.domain)
        row = more or _seek(connection, _lanes.handler > row.handler)
    return [found[name] for name in sorted(found)]


def _seek(connection: Connection, *here: ColumnElement[bool]) -> Any:
    """Return the first lane of those *here*, in the order of the key."""
    wanted = select(_lanes.handler, _lanes.domain, _lanes.first_sequence).where(*here)
    return connection.execute(wanted.order_by(_lanes.handler, _lanes.domain).limit(1)).first()


def _name_of(key: str) -> str | None:
    """Return the handler that *key* stands for; None: it stands there by a digest."""
    name = unquote(key, errors="replace")
    return name if name_key(name) == key else None


def _standing(row: RowMapping, handler: str) -> Standing:
    lane = Lane(handler, address_in(row), row["first_sequence"])
    first = None if row["sequence"] is None else waiting_of(row, lane)
    return Standing(lane, row["next_sequence"], row["count"], first)
