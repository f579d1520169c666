"""How a lane moves: one statement where nothing waits in it, a few where something does."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, bindparam, delete, select, update

from angzarr.adapters.sql.engine.engine import in_transaction
from angzarr.adapters.sql.engine.statements import Single, insert_into
from angzarr.adapters.sql.ordering.checkpoints import COUNTED, added, counted_row
from angzarr.adapters.sql.ordering.ends import ENDED, HAS_TOKEN, ended_row, kept
from angzarr.adapters.sql.ordering.tables import (
    AT_ONCE,
    at,
    lane_key,
    ordering_ends,
    ordering_lanes,
    ordering_waiting,
    projection_checkpoints,
    waiting_of,
)
from angzarr.ordering.lane import Elsewhere, Lane, Moved, Place, Step, Waiting, Why

_lanes, _waiting = ordering_lanes.c, ordering_waiting.c
_KEY = ("handler", "domain", "root", "edition")


class LaneMoves:
    """The statements by which lanes move, built once for an engine."""

    def __init__(self, engine: Engine) -> None:
        self._fresh = insert_into(engine, ordering_lanes)
        self._counting = insert_into(engine, projection_checkpoints)
        self._count = added(self._counting.values(dict(COUNTED)))
        self._ending = insert_into(engine, ordering_ends)
        self._end = kept(self._ending.values(dict(ENDED)))
        # SQLite writes to one table a statement.
        self._in_one = engine.dialect.name == "postgresql"
        self._first, self._later = self._quick(self._begun()), self._quick(_moved())
        self._alone = {move: Single(engine, move) for move in (self._first, self._later)}
        self._engine = engine
        self._look = Single(engine, looked(), reads=True)

    def look(self, lane: Lane) -> Place:
        """The place of *lane*."""
        found = self._look.first(named(lane))
        return Place(lane.first) if found is None else Place(*found)

    def alone(self, step: Step) -> bool:
        """Do as `quickly` does, in a transaction of its own."""
        if not self._in_one:
            return in_transaction(self._engine, lambda c: self.quickly(c, step))
        return self._alone[self._move(step)].first(self._values(step)) is not None

    def quickly(self, connection: Connection, step: Step) -> bool:
        """Move past *step*, keep how it ended, and count it; tell whether.

        Only if the lane is there and nothing waits.

        Where another transaction is just writing to the lane this one waits, and then goes by what
        the other one left: what was parked there is seen, and not passed by.
        """
        if self._alone[self._move(step)].first_in(connection, self._values(step)) is None:
            return False
        if not self._in_one:
            self._write_down(connection, step)
        return True

    def move(self, connection: Connection, step: Step) -> Moved | Elsewhere:
        """Move past *step*, forget what waited there, mark what is next as due, and count."""
        return Moved(None) if self.quickly(connection, step) else self.slowly(connection, step)

    def slowly(self, connection: Connection, step: Step) -> Moved | Elsewhere:
        """Do as `move` does where `quickly` did not."""
        lane, sequence = step.lane, step.sequence
        place = self.hold(connection, lane, make=sequence == lane.first)
        if place.next_sequence != sequence:
            return Elsewhere(place.next_sequence)
        gone = _forget(connection, lane, sequence)
        successor = _called(connection, lane, sequence + 1)
        onwards = {"waiting": place.waiting - gone, "moved_at": step.at}
        set_lane(connection, lane, next_sequence=sequence + 1, **onwards)
        self._write_down(connection, step)
        return Moved(successor)

    def _write_down(self, connection: Connection, step: Step) -> None:
        """Keep how *step* ended, then count it: others wait for the row of the count."""
        if step.token:
            connection.execute(self._end, ended_row(step))
        connection.execute(self._count, counted_row(step))

    def hold(self, connection: Connection, lane: Lane, *, make: bool) -> Place:
        """Keep others out of *lane* until the transaction ends; return where it is.

        Where it has no row it gets one only if *make* says so.
        """
        if not make:
            found = connection.execute(looked().with_for_update(), named(lane)).first()
            return Place(lane.first) if found is None else Place(*found)
        fresh = {"first_sequence": lane.first, "next_sequence": lane.first, "waiting": 0}
        row = self._fresh.values(**lane_key(lane), **fresh)
        as_registered = {"first_sequence": row.excluded.first_sequence}
        kept = row.on_conflict_do_update(index_elements=list(_KEY), set_=as_registered)
        there = kept.returning(_lanes.next_sequence, _lanes.waiting)
        return Place(*connection.execute(there).one())

    def _move(self, step: Step) -> Any:
        return self._first if step.sequence == step.lane.first else self._later

    def _values(self, step: Step) -> dict[str, Any]:
        place = {"k_place": step.sequence, "k_next": step.sequence + 1, "k_at": step.at}
        written = ended_row(step) | counted_row(step) if self._in_one else {}
        return named(step.lane) | place | written

    def _begun(self) -> Any:
        """The statement that moves a lane from its first place: it may have no row yet."""
        names: dict[str, Any] = {name: bindparam(f"k_{name}") for name in _KEY}
        fresh: dict[str, Any] = {
            "first_sequence": bindparam("k_place"),
            "next_sequence": bindparam("k_next"),
        }
        moved = {"waiting": 0, "moved_at": _parameter("k_at")}
        row = self._fresh.values(names | fresh | moved)
        onwards = {"next_sequence": row.excluded.next_sequence, "moved_at": row.excluded.moved_at}
        free = (_lanes.next_sequence == bindparam("k_place")) & (_lanes.waiting == 0)
        return row.on_conflict_do_update(index_elements=list(_KEY), set_=onwards, where=free)

    def _quick(self, move: Any) -> Any:
        """The statement that moves, keeps how the step ended, and counts what moved.

        A repeat keeps and counts nothing.
        """
        moved = move.returning(_lanes.next_sequence)
        if not self._in_one:
            return moved
        moved = moved.cte("moved")
        counted = select(*COUNTED.values()).select_from(moved)
        insert = added(self._counting.from_select(list(COUNTED), counted))
        ended = select(*ENDED.values()).select_from(moved).where(HAS_TOKEN)
        keep = kept(self._ending.from_select(list(ENDED), ended))
        return select(moved.c.next_sequence).add_cte(keep.cte("ended"), insert.cte("counted"))


def named(lane: Lane) -> dict[str, Any]:
    """The parameters that name *lane*."""
    return {f"k_{name}": value for name, value in lane_key(lane).items()}


def here() -> list[Any]:
    """The conditions under which a row is that of the lane named."""
    return [_lanes[name] == bindparam(f"k_{name}") for name in _KEY]


def looked() -> Any:
    """The question where a lane is."""
    return select(_lanes.next_sequence, _lanes.waiting).where(*here())


def set_lane(connection: Connection, lane: Lane, **values: Any) -> None:
    """Change the row of *lane*, which is held."""
    connection.execute(update(ordering_lanes).where(*at(ordering_lanes, lane)).values(**values))


def waits_at(connection: Connection, lane: Lane, sequence: int) -> Waiting | None:
    """The event that waits in *lane* at *sequence*."""
    wanted = select(ordering_waiting).where(*_at_place(lane, sequence))
    row = connection.execute(wanted).mappings().first()
    return None if row is None else waiting_of(row, lane)


def _called(connection: Connection, lane: Lane, sequence: int) -> Waiting | None:
    """Mark the event that is parked for *sequence*, the lane's next place, as due."""
    early = update(ordering_waiting).where(
        *_at_place(lane, sequence), _waiting.why == Why.EARLY.value
    )
    found = early.values(lent_until=AT_ONCE).returning(ordering_waiting)
    row = connection.execute(found).mappings().first()
    return None if row is None else waiting_of(row, lane)


def _forget(connection: Connection, lane: Lane, sequence: int) -> int:
    return connection.execute(delete(ordering_waiting).where(*_at_place(lane, sequence))).rowcount


def _at_place(lane: Lane, sequence: int) -> list[Any]:
    return [*at(ordering_waiting, lane), _waiting.sequence == sequence]


def _moved() -> Any:
    """The statement that moves a lane from a later place: a reset may have deleted its row."""
    free = [_lanes.next_sequence == bindparam("k_place"), _lanes.waiting == 0]
    values = {"next_sequence": bindparam("k_next"), "moved_at": _parameter("k_at")}
    return update(ordering_lanes).where(*here(), *free).values(values)


def _parameter(name: str) -> Any:
    return bindparam(name, type_=_lanes.moved_at.type)
