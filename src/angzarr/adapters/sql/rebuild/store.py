"""What a switch-over does to the live lanes: places, what waits in them, and the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    FromClause,
    and_,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.ordering.checkpoints import COUNTED, added, counted_row
from angzarr.adapters.sql.ordering.tables import (
    name_key,
    ordering_lanes,
    ordering_waiting,
    projection_checkpoints,
)
from angzarr.adapters.sql.ordering.waiting_events import IN_LANE, settle
from angzarr.adapters.sql.rebuild.progress import (
    angzarr_rebuild_failures,
    angzarr_rebuild_places,
    angzarr_rebuild_types,
    place_rows,
    places,
)
from angzarr.aggregates.book import Address, Head
from angzarr.events.event import Event
from angzarr.ordering.lane import Lane, Step, Why
from angzarr.projections.rebuild_events import head_of
from angzarr.projections.shadow_table import Behind, Plan

_KEY: Final = Address._fields
#: Lanes that are named at most.
_NAMED: Final = 5
_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_places, _failures = angzarr_rebuild_places.c, angzarr_rebuild_failures.c


def lanes_ahead(connection: Connection, plan: Plan) -> list[Behind]:
    """The aggregates whose live lanes are further than the space; no stuck ones."""
    here = func.coalesce(_places.next_sequence, plan.first)
    wanted = (
        select(_lanes.domain, _lanes.root, _lanes.edition, here, _lanes.next_sequence)
        .outerjoin(angzarr_rebuild_places, _same(ordering_lanes, angzarr_rebuild_places))
        .where(*_of(plan), _lanes.next_sequence > here, ~_stuck(ordering_lanes))
    )
    return [Behind(Address(*key), place, end) for *key, place, end in connection.execute(wanted)]


def events_missing(connection: Connection, plan: Plan, ahead: Sequence[Behind]) -> int:
    """Count the events of lanes that were *ahead* and that the space lacks still: no book has them.

    Those that lanes have passed since then do not count: without a run, they have no effects.
    """
    known = {one.address: one.until for one in ahead}
    lacking = lanes_ahead(connection, plan)
    return sum(max(known.get(one.address, 0) - one.place, 0) for one in lacking)


def events_ahead(connection: Connection, plan: Plan) -> int:
    """Count the events that are in the space and that the live lanes have before them."""
    mine = and_(_same(ordering_lanes, angzarr_rebuild_places), *_of(plan))
    there = func.coalesce(_lanes.next_sequence, plan.first)
    wanted = (
        select(func.coalesce(func.sum(_places.next_sequence - there), 0))
        .select_from(angzarr_rebuild_places)
        .outerjoin(ordering_lanes, mine)
        .where(_places.next_sequence > there)
    )
    return int(connection.scalar(wanted) or 0)


def blocked(connection: Connection, plan: Plan) -> tuple[Head, ...]:
    """The places of some lanes that dead letters keep from going on to the space."""
    there = [_waiting.sequence == _lanes.next_sequence, _waiting.why == Why.DEAD_LETTER.value]
    wanted = (
        select(*_address(), _lanes.next_sequence)
        .join(angzarr_rebuild_places, _same(ordering_lanes, angzarr_rebuild_places))
        .join(ordering_waiting, and_(IN_LANE, *there))
        .where(*_of(plan), _lanes.waiting > 0, _places.next_sequence > _lanes.next_sequence)
        .order_by(*_address())
        .limit(_NAMED)
    )
    return tuple(Head(Address(*key), place) for *key, place in connection.execute(wanted))


def live_places(
    connection: Connection, plan: Plan, addresses: Iterable[Address]
) -> dict[Address, int]:
    """The places of the live lanes of *addresses*."""
    return places(connection, addresses, ordering_lanes, _lanes.handler == name_key(plan.handler))


def events_in_no_book(connection: Connection, plan: Plan, books: Iterable[Sequence[Head]]) -> int:
    """Count the events that the live lanes have behind them and that none of *books* has."""
    unknown = _passed(connection, plan)
    for page in books:
        known = live_places(connection, plan, [head.address for head in page])
        for address, end in page:
            unknown -= max(min(known.get(address, plan.first), end) - plan.first, 0)
    return max(unknown, 0)


def _passed(connection: Connection, plan: Plan) -> int:
    """Count the events that the live lanes have behind them."""
    wanted = select(func.coalesce(func.sum(_lanes.next_sequence - plan.first), 0))
    return int(connection.scalar(wanted.where(*_of(plan), _lanes.next_sequence > plan.first)) or 0)


def set_lanes(connection: Connection, plan: Plan, now: datetime) -> None:
    """Move the live lanes to where the space is, and settle what waits in them.

    A lane that somebody moved on meanwhile without a run, by a skip, stays there. One whose
    aggregate is stuck goes back to the event that failed.
    """
    _put_lanes(connection, plan, angzarr_rebuild_places, now)
    _set_back(connection, plan, now)
    settle_waiting(connection, plan)


def move_lanes(
    connection: Connection, plan: Plan, following: Mapping[Address, int], now: datetime
) -> None:
    """Move the live lanes of some aggregates on, and settle what waits in them."""
    if following:
        _put_lanes(connection, plan, place_rows(connection, following), now)
        settle_waiting(connection, plan, following)


def _put_lanes(connection: Connection, plan: Plan, places: FromClause, now: datetime) -> None:
    values: dict[str, Any] = {
        "handler": literal(name_key(plan.handler)),
        **{name: places.c[name] for name in _KEY},
        "first_sequence": literal(plan.first),
        "next_sequence": places.c.next_sequence,
        "waiting": literal(0),
        "moved_at": literal(now, _lanes.moved_at.type),
    }
    # Without a WHERE SQLite takes the ON of ON CONFLICT for one of a join.
    given = select(*values.values()).where(literal(1) == 1)
    row = insert_into(connection, ordering_lanes).from_select(list(values), given)
    new = row.excluded.next_sequence
    connection.execute(
        row.on_conflict_do_update(
            index_elements=[_lanes.handler, *_address()],
            set_={"next_sequence": new, "moved_at": row.excluded.moved_at},
            where=new > _lanes.next_sequence,
        )
    )


def _set_back(connection: Connection, plan: Plan, now: datetime) -> None:
    """Let the live lanes of stuck aggregates be at the events that failed."""
    here = _same(ordering_lanes, angzarr_rebuild_places)
    place = select(_places.next_sequence).where(here).scalar_subquery()
    beyond = [*_of(plan), _stuck(ordering_lanes), _lanes.next_sequence > place]
    connection.execute(
        update(ordering_lanes).where(*beyond).values(next_sequence=place, moved_at=now)
    )


def set_checkpoint(connection: Connection, plan: Plan, now: datetime) -> None:
    """Let the checkpoint say what is in the space."""
    types, name = angzarr_rebuild_types.c, name_key(plan.handler)
    here = projection_checkpoints.c
    connection.execute(delete(projection_checkpoints).where(here.projection == name))
    values = {
        "projection": literal(name),
        "event_type": types.event_type,
        "slot": literal(0),
        "last_event_id": types.last_event_id,
        "last_event_type": types.last_event_type,
        "last_processed_at": literal(now, here.last_processed_at.type),
        "events_processed": types.events,
    }
    given = select(*values.values())
    connection.execute(insert(projection_checkpoints).from_select(list(values), given))


def count(connection: Connection, plan: Plan, events: Sequence[Event], now: datetime) -> None:
    """Count *events* in the live checkpoint."""
    for event in {one.type: one for one in events}.values():
        address, sequence = head_of(event)
        lane = Lane(plan.handler, address, plan.first)
        step = Step(lane, sequence, event.id, event.type, event.occurred_at, now)
        number = sum(one.type == event.type for one in events)
        counted = counted_row(step) | {COUNTED["events_processed"].key: number}
        connection.execute(
            added(insert_into(connection, projection_checkpoints).values(COUNTED)), counted
        )


def settle_waiting(
    connection: Connection, plan: Plan, moved: Mapping[Address, int] | None = None
) -> None:
    """Forget retries and dead letters that are past, and mark what is parked and has its turn.

    In the lanes of *moved* only, if that is given.
    """
    wanted = select(_lanes.handler, *_address()).where(*_of(plan), _lanes.waiting > 0)
    if moved is not None:
        given = place_rows(connection, moved)
        wanted = wanted.where(tuple_(*_address()).in_(select(*(given.c[name] for name in _KEY))))
    settle(connection, connection.execute(wanted).all())


def _address() -> list[Any]:
    return [_lanes[name] for name in _KEY]


def _of(plan: Plan) -> list[Any]:
    return [_lanes.handler == name_key(plan.handler), _lanes.domain.in_(plan.domains)]


def _same(one: Any, other: Any) -> Any:
    return and_(*(one.c[name] == other.c[name] for name in _KEY))


def _stuck(table: Any) -> Any:
    return exists().where(_same(angzarr_rebuild_failures, table))
