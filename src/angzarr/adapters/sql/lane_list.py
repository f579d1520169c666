"""Which handlers have lanes, and which of these stand, a page at a time; nothing is locked."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import Connection, RowMapping, and_, exists, func, literal, null, select, tuple_

from angzarr.adapters.sql.book_rows import address_in
from angzarr.adapters.sql.lane_rows import name_key, waiting_of
from angzarr.adapters.sql.lane_tables import ordering_lanes, ordering_waiting
from angzarr.adapters.sql.lane_waiting import IN_LANE
from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Known, Lane, Standing, Why

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_KEY: Final = ("handler", *Address._fields)
_WAITS: Final = ("sequence", "why", "since", "event_id", "event_type", "letter_id", "due_at")
#: That a dead letter holds a lane up; in the words of the index of letters.
_BLOCKED: Final = exists(
    select(literal(1)).where(
        IN_LANE,
        _waiting.sequence == _lanes.next_sequence,
        _waiting.why == Why.DEAD_LETTER.value,
        _waiting.letter_id.is_not(None),
    )
)


def standing(
    connection: Connection, handler: str, after: Address | None, limit: int, *, blocked: bool
) -> list[Standing]:
    """Return lanes of *handler* in which something waits, by address."""
    here = [_lanes.handler == name_key(handler), _lanes.waiting > 0]
    if after is not None:
        here.append(tuple_(*(_lanes[name] for name in Address._fields)) > tuple_(*after))
    if blocked:
        here.append(_BLOCKED)
    by_address = [_lanes[name] for name in Address._fields]
    page = select(ordering_lanes).where(*here).order_by(*by_address).limit(limit).subquery("page")
    later = ordering_waiting.alias("later")
    first = (
        select(func.min(later.c.sequence))
        .where(*(later.c[name] == page.c[name] for name in _KEY))
        .where(later.c.sequence >= page.c.next_sequence)
        .scalar_subquery()
    )
    same = and_(*(_waiting[name] == page.c[name] for name in _KEY), _waiting.sequence == first)
    asked = select(
        *(page.c[name] for name in (*_KEY, "first_sequence", "next_sequence")),
        page.c.waiting.label("count"),
        *(_waiting[name] for name in _WAITS),
        null().label("text"),
    ).select_from(page.outerjoin(ordering_waiting, same))
    rows = connection.execute(asked.order_by(*(page.c[name] for name in Address._fields)))
    return [_standing(row, handler) for row in rows.mappings()]


def known(connection: Connection) -> list[Known]:
    """Return the handlers that have lanes: each question seeks the next handler or domain."""
    found: dict[str, Known] = {}
    row = _next(connection, "", "")
    while row is not None:
        handler = _name_of(row.handler)
        if handler is not None:
            there = found.get(handler, Known(handler, frozenset(), row.first_sequence))
            found[handler] = there._replace(domains=there.domains | {row.domain})
        row = _next(connection, row.handler, row.domain)
    return [found[name] for name in sorted(found)]


def _next(connection: Connection, handler: str, domain: str) -> Any:
    """Return a lane of the handler and domain behind these, in the order of the index."""
    wanted = (
        select(_lanes.handler, _lanes.domain, _lanes.first_sequence)
        .where(tuple_(_lanes.handler, _lanes.domain) > tuple_(handler, domain))
        .order_by(_lanes.handler, _lanes.domain)
        .limit(1)
    )
    return connection.execute(wanted).first()


def _name_of(key: str) -> str | None:
    """Return the handler that *key* stands for; None: it stands there by a digest."""
    name = unquote(key, errors="replace")
    return name if name_key(name) == key else None


def _standing(row: RowMapping, handler: str) -> Standing:
    lane = Lane(handler, address_in(row), row["first_sequence"])
    first = None if row["sequence"] is None else waiting_of(row, lane)
    return Standing(lane, row["next_sequence"], row["count"], first)
