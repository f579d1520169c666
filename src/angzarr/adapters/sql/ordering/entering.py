"""Entering a lane on PostgreSQL: the transaction of a run begins with the look that it needs.

That saves each event an exchange with the database, and the gate is passed in the same statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, and_, literal, select
from sqlalchemy.exc import DBAPIError

from angzarr.adapters.sql.engine.engine import in_transaction, told_as
from angzarr.adapters.sql.engine.error_kind import lacks_lock
from angzarr.adapters.sql.engine.single import Single
from angzarr.adapters.sql.ordering import gate as lane_gate
from angzarr.adapters.sql.ordering import running as lane_running
from angzarr.adapters.sql.ordering.moving import here, named
from angzarr.adapters.sql.ordering.tables import ordering_lanes
from angzarr.errors import StoreUnavailable
from angzarr.ordering.lane import Elsewhere, Lane, Moved, Place, Step
from angzarr.ordering.lanes import Entered

_lanes = ordering_lanes.c


class LaneEntering:
    """The statement by which runs are let in, built once for an engine; *move* ends a run."""

    def __init__(
        self, engine: Engine, move: Callable[[Connection, Step], Moved | Elsewhere]
    ) -> None:
        self._engine = engine
        self._move = move
        #: Whether a transaction keeps nobody waiting before it writes: SQLite has one writer.
        self.is_early = engine.dialect.name == "postgresql"
        one = select(literal(1)).subquery("one")
        lane = one.outerjoin(ordering_lanes, and_(*here()))
        asked = select(lane_gate.LETS_IN, _lanes.next_sequence, _lanes.waiting).select_from(lane)
        self._enter = Single(engine, asked)

    def enter(self, lane: Lane) -> Entered | None:
        """Begin a transaction, and look; None, with it ended, where the gate of *lane* is shut.

        What is seen may be older than the gate: a move tells. None, too, where a batch of a rebuild
        in place takes longer than a lock is waited for. Raises StoreUnavailable.
        """
        try:
            return self._entered(lane)
        except StoreUnavailable as away:
            cause = away.__cause__ or away
            if lacks_lock(cause):
                return None
            if not (isinstance(cause, DBAPIError) and cause.connection_invalidated):
                raise
        # The server was started anew, perhaps: all pooled connections go with the first, that way.
        in_transaction(self._engine, lambda connection: connection.execute(select(literal(1))))
        return self._entered(lane)

    def _entered(self, lane: Lane) -> Entered | None:
        begun = lane_running.begin(self._engine)
        try:
            let_in, *found = self._asked(begun.connection, lane)
        except BaseException:
            with begun.within:  # it sees what ends it
                raise
        if not let_in:
            lane_running.leave(begun)
            return None
        place = Place(lane.first) if found[0] is None else Place(*found)
        return _Entered(place, begun, self._move)

    def _asked(self, connection: Connection, lane: Lane) -> Sequence[Any]:
        values = named(lane) | lane_gate.keys_of(lane.handler)
        with told_as(StoreUnavailable, self._engine):
            row = self._enter.first_in(connection, values)
        assert row is not None  # noqa: S101 - an outer join of one row
        return row


@dataclass(slots=True)
class _Entered(Entered):
    place: Place
    begun: lane_running.Begun
    move: Callable[[Connection, Step], Moved | Elsewhere]

    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* with the Connection, and move past *step* in its transaction."""
        if self.place.next_sequence != step.sequence:
            self.close()
            return Elsewhere(self.place.next_sequence)
        return lane_running.run(self.begun, work, lambda connection: self.move(connection, step))

    def close(self) -> None:
        """Roll back, unless it ran."""
        lane_running.leave(self.begun)
