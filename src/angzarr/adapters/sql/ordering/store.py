"""Lanes in SQL: one transaction a verb, and one writer a lane at a time.

On PostgreSQL a writer holds the row of its lane, on SQLite the whole database (BEGIN IMMEDIATE).
What is looked at and moved all the time takes one statement, which needs no transaction around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from angzarr.adapters.sql.engine.engine import in_transaction, patient, reading
from angzarr.adapters.sql.engine.schema import Readiness
from angzarr.adapters.sql.ordering import gate, queries, runs, waiting_events
from angzarr.adapters.sql.ordering.gate import LaneDuty
from angzarr.adapters.sql.ordering.moves import LaneMoves, waits_at
from angzarr.adapters.sql.ordering.runs import LaneEntry
from angzarr.adapters.sql.ordering.tables import ORDERING, by_key
from angzarr.aggregates.book import Address
from angzarr.clock import Clock, SystemClock
from angzarr.errors import StoreUnavailable
from angzarr.ordering.lane import (
    Elsewhere,
    Gap,
    Known,
    Lane,
    Moved,
    ParkAnswer,
    Place,
    Standing,
    Step,
    Summary,
    Waiting,
    Why,
)
from angzarr.ordering.lanes import Entered, Lanes, Looked

_Answer = TypeVar("_Answer")


class SqlLanes(Lanes):
    """Lanes in the tables ``ordering_lanes`` and ``ordering_waiting``.

    They are made or, unless *migrate* is False, upgraded before the first use. Whoever moves one
    counts in ``projection_checkpoints``. *close* lets the engine go.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        close: Callable[[], None] | None = None,
        clock: Clock | None = None,
        migrate: bool = True,
    ) -> None:
        self._engine = engine
        self._alone, self._reading = _alone(engine), _alone(reading(engine))
        self._moving, self._duty = LaneMoves(engine), LaneDuty(engine)
        self._entering = LaneEntry(engine, self._moving.move)
        self._close = close or engine.dispose
        self._clock = clock or SystemClock()
        self._prepare = Readiness(ORDERING, engine, migrate=migrate)

    def look(self, lane: Lane, /) -> Place:
        """Return where *lane* is."""
        self._prepare()
        return self._moving.look(lane)

    def move(self, step: Step, /) -> Moved | Elsewhere:
        """Move a lane past *step* and count it."""
        self._prepare()
        if self._moving.alone(step):
            return Moved(None)
        moved = self._write(lambda connection: self._moving.slowly(connection, step))
        if moved != Elsewhere(step.sequence + 1):
            return moved
        # An earlier call moved it, and its caller may not know what was parked there.
        return self._ask(lambda connection: _moved_before(connection, step))

    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* with a Connection, and move past *step* in its transaction."""
        if not self._entering.is_early:
            self._prepare()
            begun, move = runs.begin(self._engine), self._moving.move
            return runs.run(begun, work, lambda c: move(c, step))
        entered = self.enter(step.lane)
        if entered is None:
            msg = f"the read model of {step.lane.handler} is just being replaced or rebuilt"
            raise StoreUnavailable(msg)
        return entered.run(step, work)

    def enter(self, lane: Lane, /) -> Entered | None:
        """Look at *lane*; on PostgreSQL in the transaction of its run, which SQLite begins late."""
        self._prepare()
        if not self._entering.is_early:
            return Looked(self._moving.look(lane), self)
        return self._entering.enter(lane)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a Connection for a transaction that moves no lane."""
        self._prepare()
        with runs.transaction(self._engine) as connection:
            yield connection

    def park(self, early: Waiting, most: int, /) -> ParkAnswer:
        """Keep an EARLY event."""
        return self._write(lambda c: waiting_events.park(c, self._moving, early, most))

    def note(self, waiting: Waiting, /, *, claimed: bool = True) -> None:
        """Keep that an event is RETRYING or a DEAD_LETTER."""
        self._write(lambda c: waiting_events.note(c, self._moving, waiting, claimed=claimed))

    def released(self, early: Waiting, /) -> None:
        """Forget an EARLY event."""
        self._write(lambda connection: waiting_events.released(connection, self._moving, early))

    def due(
        self, handlers: Sequence[str], now: datetime, lease: timedelta, limit: int, /
    ) -> Sequence[Waiting]:
        """Lend EARLY events whose turn has come. Looks first, without a lock: mostly none has."""
        keys = by_key(handlers)
        if not self._ask(lambda c: c.execute(waiting_events.due(keys, now, limit)).first()):
            return []
        return self._write(lambda c: waiting_events.lend(c, keys, now, lease, limit))

    def recall(self, handlers: Sequence[str], limit: int, /) -> int:
        """Let `due` find EARLY events that it overlooks. Looks first, without a lock."""
        keys = by_key(handlers)
        lanes = self._ask(lambda c: waiting_events.overlooked(c, keys, limit))
        if lanes:
            self._write(lambda c: waiting_events.settle(c, lanes))
        return len(lanes)

    def gaps(self, handlers: Sequence[str], before: datetime, limit: int, /) -> Sequence[Gap]:
        """Return lanes whose next event nobody knows of."""
        return self._ask(lambda c: queries.gaps(c, by_key(handlers), before, limit))

    def sending(self, gap: Gap, sent: int, until: datetime, /) -> bool:
        """Note how often what is missing was sent, and until when it is not once more."""
        return self._write(lambda c: queries.sending(c, gap, sent, until))

    def on_duty(self, keeper: str, span: timedelta, /, *, of: Sequence[str] = ()) -> bool:
        """Tell whether *keeper* is on duty; the database's clock counts."""
        self._prepare()
        return in_transaction(self._alone, lambda c: self._duty.take(c, keeper, span, of))

    def places(self, handler: str, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """Return the next sequences of the lanes at *addresses*."""
        return self._ask(lambda connection: queries.places(connection, handler, addresses))

    def summaries(self, handlers: Sequence[str], /) -> Sequence[Summary]:
        """Return a summary for each of *handlers*."""
        return self._ask(lambda c: [queries.summary(c, handler) for handler in handlers])

    def waiting(
        self, handler: str, /, *, address: Address | None = None, limit: int = 100
    ) -> Sequence[Waiting]:
        """Return what waits in the lanes of *handler*."""
        return self._ask(lambda c: queries.waiting(c, handler, address, limit))

    def standing(
        self, handler: str, /, *, limit: int, after: Address | None = None, blocked: bool = False
    ) -> Sequence[Standing]:
        """Return lanes of *handler* in which something waits."""
        return self._ask(lambda c: queries.standing(c, handler, after, limit, blocked=blocked))

    def known(self) -> Sequence[Known]:
        """Return the handlers that have lanes."""
        return self._ask(queries.known)

    def behind(self, letter_ids: Sequence[str], /) -> Mapping[str, int]:
        """Return how many events are parked behind each dead letter."""
        return self._ask(lambda connection: queries.behind(connection, letter_ids))

    def skip_to(self, lane: Lane, sequence: int, /) -> Place:
        """Move *lane* on to *sequence*."""
        moving, now = self._moving, self._clock.now()
        return self._write(lambda c: waiting_events.skip_to(c, moving, lane, sequence, now))

    def reset(self, handler: str, work: Callable[[Any], object] | None = None, /) -> int:
        """Let all lanes of *handler* begin anew; a million of them take a while."""
        self._prepare()
        with patient(self._engine) as engine, runs.transaction(engine) as connection:
            with runs.ours(connection):  # what a run amid it writes would stay
                gate.shut(connection, handler)
            if work is not None:
                work(connection)
            with runs.ours(connection):
                return waiting_events.reset(connection, handler)

    def close(self) -> None:
        """Let the connections go."""
        self._close()

    def _ask(self, step: Callable[[Connection], _Answer]) -> _Answer:
        self._prepare()
        return in_transaction(self._reading, step)

    def _write(self, step: Callable[[Connection], _Answer]) -> _Answer:
        self._prepare()
        return in_transaction(self._engine, step)


def _alone(engine: Engine) -> Engine:
    """Return *engine* for transactions of one statement: PostgreSQL needs no BEGIN and COMMIT."""
    if engine.dialect.name != "postgresql":
        return engine
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _moved_before(connection: Connection, step: Step) -> Moved | Elsewhere:
    """Return what waits behind *step* where its lane is just past it."""
    successor = waits_at(connection, step.lane, step.sequence + 1)
    is_parked = successor is not None and successor.why is Why.EARLY
    return Moved(successor if is_parked else None)
