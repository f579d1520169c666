"""Questions about lanes from people and from the keeper; they lock nothing.

All but `summaries` begin at lanes in which something waits: a few of a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    case,
    func,
    null,
    or_,
    select,
    tuple_,
    update,
)

from angzarr.adapters.sql.engine.statements import as_table
from angzarr.adapters.sql.event_store.tables import address_in, key_of
from angzarr.adapters.sql.ordering.moves import waits_at
from angzarr.adapters.sql.ordering.tables import (
    at,
    found_in,
    name_key,
    ordering_lanes,
    ordering_waiting,
    waiting_of,
)
from angzarr.adapters.sql.ordering.waiting_events import EARLY, IN_LANE
from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Gap, Known, Lane, Standing, Summary, Waiting, Why

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_KEY: Final = ("handler", "domain", "root", "edition")
#: The columns about a missing event that was sent again.
_SENT: Final = ("sent_place", "sent_times", "sent_until")
_LANE: Final = (*_KEY, "first_sequence", "next_sequence", *_SENT)
#: Letters that one question is about: some SQLites take 999 values.
_LETTERS: Final = 500


def gaps(
    connection: Connection, handlers: Mapping[str, str], before: datetime, limit: int
) -> list[Gap]:
    """Lanes whose next event is missing; see `Lanes.gaps`."""
    found = _gaps(list(handlers), before, limit)
    first = and_(
        *(_waiting[name] == found.c[name] for name in _KEY), _waiting.sequence == found.c.first
    )
    told = ("first_sequence", "next_sequence", "parked", "is_known", *_SENT)
    wanted = select(ordering_waiting, *(found.c[name] for name in told)).join(found, first)
    rows = connection.execute(wanted.order_by(*_soonest(found.c), found.c.oldest)).mappings()
    return [_gap(connection, row, found_in(row, handlers)) for row in rows.all()]


def sending(connection: Connection, gap: Gap, sent: int, until: datetime) -> bool:
    """Note how often what is missing was sent, unless another keeper did since *gap* was read."""
    place = _lanes.sent_place == gap.missing
    if gap.sent_until is None:
        seen = or_(_lanes.sent_place.is_(None), ~place)
    else:
        seen = and_(place, _lanes.sent_times == gap.sent, _lanes.sent_until == gap.sent_until)
    here = [*at(ordering_lanes, gap.lane), _lanes.next_sequence == gap.missing, seen]
    said = {"sent_place": gap.missing, "sent_times": sent, "sent_until": until}
    return connection.execute(update(ordering_lanes).where(*here).values(said)).rowcount > 0


def places(
    connection: Connection, handler: str, addresses: Sequence[Address]
) -> dict[Address, int]:
    """The places of the lanes at *addresses* that have moved."""
    if not addresses:
        return {}
    key = [_lanes[name] for name in Address._fields]
    wanted = as_table(connection.dialect, "wanted", key, addresses)
    here = [_lanes[name] == wanted.c[name] for name in Address._fields]
    mine = and_(_lanes.handler == name_key(handler), *here, _lanes.moved_at.is_not(None))
    # An outer join begins at what is wanted: SQLite would else read all lanes of the handler.
    asked = select(*(wanted.c[name] for name in Address._fields), _lanes.next_sequence)
    rows = connection.execute(asked.select_from(wanted.outerjoin(ordering_lanes, mine)))
    return {Address(*row[:3]): row[3] for row in rows if row[3] is not None}


def summary(connection: Connection, handler: str) -> Summary:
    """The lanes of *handler* together."""
    key = name_key(handler)
    lanes = select(func.count()).select_from(ordering_lanes).where(_lanes.handler == key)
    holds_up = _lanes.next_sequence == _waiting.sequence
    wanted = (
        select(
            func.count(case((EARLY, 1))),
            func.count(case((and_(_letter(), holds_up), 1))),
            func.min(_waiting.since),
        )
        .select_from(ordering_waiting)
        .join(ordering_lanes, IN_LANE)
        .where(_waiting.handler == key, _lanes.waiting > 0)
    )
    parked, blocked, oldest = connection.execute(wanted).one()
    return Summary(handler, int(connection.scalar(lanes) or 0), parked, blocked, oldest)


def waiting(
    connection: Connection, handler: str, address: Address | None, limit: int
) -> list[Waiting]:
    """The events that wait in the lanes of *handler*, or in one of them, in order."""
    key = name_key(handler)
    here = [] if address is None else [_waiting[n] == v for n, v in key_of(address).items()]
    wanted = (
        select(ordering_waiting, _lanes.first_sequence)
        .join(ordering_lanes, IN_LANE)
        .where(_waiting.handler == key, *here)
        .order_by(*(_waiting[name] for name in _KEY), _waiting.sequence)
        .limit(limit)
    )
    return [found_in(row, {key: handler}) for row in connection.execute(wanted).mappings()]


def behind(connection: Connection, letter_ids: Sequence[str]) -> dict[str, int]:
    """The number of events that are parked in the lane that each letter holds up."""
    found: dict[str, int] = {}
    for some in _parts(letter_ids, _LETTERS):
        letters, parked = ordering_waiting.alias("letters"), _waiting
        of_letter = and_(*(letters.c[name] == _lanes[name] for name in _KEY))
        holds_up = and_(of_letter, letters.c.sequence == _lanes.next_sequence)
        counted = (
            select(letters.c.letter_id, func.count())
            .select_from(letters)
            .join(ordering_lanes, holds_up)
            .join(ordering_waiting, and_(IN_LANE, EARLY))
            .where(letters.c.letter_id.in_(some), letters.c.why == Why.DEAD_LETTER.value)
            .where(parked.sequence > _lanes.next_sequence)
            .group_by(letters.c.letter_id)
        )
        found.update({row[0]: row[1] for row in connection.execute(counted)})
    return found


def _gaps(handlers: Sequence[str], before: datetime, limit: int) -> Any:
    there = ordering_waiting.alias("there")
    at_place = and_(
        *(there.c[name] == _lanes[name] for name in _KEY),
        there.c.sequence == _lanes.next_sequence,
    )
    # A lane that moves has mostly sent for what is next: that is in a queue, and in no table.
    stands = or_(_lanes.moved_at.is_(None), _lanes.moved_at < before)
    late = and_(there.c.why == Why.RETRYING.value, there.c.due_at < before)
    oldest = func.min(_waiting.since)
    asked: Select[Any] = (
        select(
            *(_lanes[name] for name in _LANE),
            func.min(_waiting.sequence).label("first"),
            func.count().label("parked"),
            oldest.label("oldest"),
            func.count(there.c.sequence).label("is_known"),
        )
        .select_from(ordering_lanes)
        .outerjoin(there, at_place)
        .join(ordering_waiting, and_(IN_LANE, EARLY, _waiting.sequence > _lanes.next_sequence))
        .where(_lanes.handler.in_(handlers), _lanes.waiting > 0, stands)
        .where(or_(there.c.sequence.is_(None), late))
        .group_by(*(_lanes[name] for name in _LANE))
        .having(oldest < before)
        .order_by(*_soonest(_lanes), oldest)
        .limit(limit)
    )
    return asked.subquery("found")


def _soonest(lanes: Any) -> list[Any]:
    """The order in which lanes may be sent again what they miss, at once first."""
    is_of_now = lanes.sent_place == lanes.next_sequence
    return [case((is_of_now, 1), else_=0), case((is_of_now, lanes.sent_until), else_=None)]


def _gap(connection: Connection, row: RowMapping, first: Waiting) -> Gap:
    missing = row["next_sequence"]
    gap = Gap(first.lane, missing, first, row["parked"])
    if row["is_known"]:  # seldom
        gap = gap._replace(overdue=waits_at(connection, first.lane, missing))
    if row["sent_place"] != missing:
        return gap
    return gap._replace(sent=row["sent_times"], sent_until=row["sent_until"])


def _letter() -> Any:
    return _waiting.why == Why.DEAD_LETTER.value


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


_later, _first = ordering_waiting.alias("later"), ordering_waiting.alias("first")
_WAITS: Final = ("sequence", "why", "since", "event_id", "event_type", "letter_id", "due_at")
_ADDRESS: Final = [_waiting[name] for name in Address._fields]


def standing(
    connection: Connection, handler: str, after: Address | None, limit: int, *, blocked: bool
) -> list[Standing]:
    """Lanes of *handler* in which something waits, by address."""
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
    """The question which lanes something waits in: one walk along the key of what waits."""
    names = (_waiting[name] for name in _KEY)
    return select(*names).distinct().where(_waiting.handler == name_key(handler))


def _blocked(handler: str) -> Select[Any]:
    """The question which lanes letters hold up, in words that begin at their index."""
    mine = _waiting.handler.concat("") == name_key(handler)
    return (
        select(*(_waiting[name] for name in _KEY))
        .join(ordering_lanes, and_(IN_LANE, _lanes.next_sequence == _waiting.sequence))
        .where(mine, _waiting.letter_id.is_not(None), _waiting.letter_id >= "")
        .where(_waiting.why == Why.DEAD_LETTER.value)
    )


def known(connection: Connection) -> list[Known]:
    """The handlers that have lanes: each question seeks the next domain, or handler."""
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
    """The first lane of those *here*, in the order of the key."""
    wanted = select(_lanes.handler, _lanes.domain, _lanes.first_sequence).where(*here)
    return connection.execute(wanted.order_by(_lanes.handler, _lanes.domain).limit(1)).first()


def _name_of(key: str) -> str | None:
    """The handler that *key* stands for; None: it stands there by a digest."""
    name = unquote(key, errors="replace")
    return name if name_key(name) == key else None


def _standing(row: RowMapping, handler: str) -> Standing:
    lane = Lane(handler, address_in(row), row["first_sequence"])
    first = None if row["sequence"] is None else waiting_of(row, lane)
    return Standing(lane, row["next_sequence"], row["count"], first)
