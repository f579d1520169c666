"""Lanes in SQL: one transaction a verb, and one writer a lane at a time.

On PostgreSQL a writer holds the row of its lane, on SQLite the whole database (BEGIN IMMEDIATE).
What is looked at and moved all the time takes one statement, which needs no transaction around it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, or_

from angzarr.adapters.sql.engine.engine import in_transaction, patient
from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import database_now, database_time_after, insert_into
from angzarr.adapters.sql.event_store.tables import to_text
from angzarr.adapters.sql.ordering import ends, queries, runs, waiting_events
from angzarr.adapters.sql.ordering.moves import LaneMoves, waits_at
from angzarr.adapters.sql.ordering.runs import LaneEntry, shut
from angzarr.adapters.sql.ordering.tables import ORDERING, by_key, ordering_keepers
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
    StepEnd,
    Summary,
    Waiting,
    Why,
)
from angzarr.ordering.lanes import Entered, Lanes, Looked


class SqlLanes(Lanes):
    """Lanes in the tables ``ordering_lanes`` and ``ordering_waiting``.

    They are made or, unless *migrate* is False, upgraded before the first use. Moves are
    counted in ``projection_checkpoints``. *close* lets the engine go.
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
        options = _alone(engine)
        self._alone = engine.execution_options(**options)
        self._moves, self._duty = LaneMoves(engine), LaneDuty(engine)
        self._entry = LaneEntry(engine, self._moves.move)
        self._clock = clock or SystemClock()
        self._database = SchemaDatabase(
            ORDERING, engine, migrate=migrate, close=close, reads=options
        )

    def look(self, lane: Lane, /) -> Place:
        """The place of *lane*."""
        self._database.prepare()
        return self._moves.look(lane)

    def move(self, step: Step, /) -> Moved | Elsewhere:
        """Move a lane past *step* and count it."""
        self._database.prepare()
        if self._moves.alone(step):
            return Moved(None)
        moved = self._database.write(lambda connection: self._moves.slowly(connection, step))
        if moved != Elsewhere(step.sequence + 1):
            return moved
        # An earlier call moved it, and its caller may not know what was parked there.
        return self._database.read(lambda connection: _moved_before(connection, step))

    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* with a Connection, and move past *step* in its transaction."""
        if not self._entry.is_early:
            self._database.prepare()
            begun, move = runs.begin(self._engine), self._moves.move
            return runs.run(begun, work, lambda c: move(c, step))
        entered = self.enter(step.lane)
        if entered is None:
            msg = f"the read model of {step.lane.handler} is just being replaced or rebuilt"
            raise StoreUnavailable(msg)
        return entered.run(step, work)

    def ended(self, step: Step, since: datetime, /) -> StepEnd | None:
        """How an earlier delivery of the event of *step* ended."""
        return self._database.read(lambda connection: ends.end_of(connection, step, since))

    def forget_ends(self, before: datetime, limit: int, /) -> int:
        """Forget how old steps ended."""
        return self._database.write(lambda connection: ends.forget(connection, before, limit))

    def enter(self, lane: Lane, /) -> Entered | None:
        """Look at *lane*; on PostgreSQL in the transaction of its run, which SQLite begins late."""
        self._database.prepare()
        if not self._entry.is_early:
            return Looked(self._moves.look(lane), self)
        return self._entry.enter(lane)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a Connection for a transaction that moves no lane."""
        self._database.prepare()
        with runs.transaction(self._engine) as connection:
            yield connection

    def park(self, early: Waiting, most: int, /) -> ParkAnswer:
        """Keep an EARLY event."""
        return self._database.write(lambda c: waiting_events.park(c, self._moves, early, most))

    def note(self, waiting: Waiting, /, *, claimed: bool = True) -> None:
        """Keep that an event is RETRYING or a DEAD_LETTER."""
        self._database.write(
            lambda c: waiting_events.note(c, self._moves, waiting, claimed=claimed)
        )

    def released(self, early: Waiting, /) -> None:
        """Forget an EARLY event."""
        self._database.write(
            lambda connection: waiting_events.released(connection, self._moves, early)
        )

    def due(
        self, handlers: Sequence[str], now: datetime, lease: timedelta, limit: int, /
    ) -> Sequence[Waiting]:
        """Lend EARLY events whose turn has come. Looks first, without a lock: mostly none has."""
        keys = by_key(handlers)
        if not self._database.read(
            lambda c: c.execute(waiting_events.due(keys, now, limit)).first()
        ):
            return []
        return self._database.write(lambda c: waiting_events.lend(c, keys, now, lease, limit))

    def recall(self, handlers: Sequence[str], limit: int, /) -> int:
        """Let `due` find EARLY events that it overlooks. Looks first, without a lock."""
        keys = by_key(handlers)
        lanes = self._database.read(lambda c: waiting_events.overlooked(c, keys, limit))
        if lanes:
            self._database.write(lambda c: waiting_events.settle(c, lanes))
        return len(lanes)

    def gaps(self, handlers: Sequence[str], before: datetime, limit: int, /) -> Sequence[Gap]:
        """Lanes whose next event is missing."""
        return self._database.read(lambda c: queries.gaps(c, by_key(handlers), before, limit))

    def sending(self, gap: Gap, sent: int, until: datetime, /) -> bool:
        """Note how often what is missing was sent, and until when it is not once more."""
        return self._database.write(lambda c: queries.sending(c, gap, sent, until))

    def on_duty(self, keeper: str, span: timedelta, /, *, of: Sequence[str] = ()) -> bool:
        """True if *keeper* is on duty; the database's clock counts."""
        self._database.prepare()
        return in_transaction(self._alone, lambda c: self._duty.take(c, keeper, span, of))

    def places(self, handler: str, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """The next sequences of the lanes at *addresses*."""
        return self._database.read(
            lambda connection: queries.places(connection, handler, addresses)
        )

    def summaries(self, handlers: Sequence[str], /) -> Sequence[Summary]:
        """A summary for each of *handlers*."""
        return self._database.read(lambda c: [queries.summary(c, handler) for handler in handlers])

    def waiting(
        self, handler: str, /, *, address: Address | None = None, limit: int = 100
    ) -> Sequence[Waiting]:
        """The events that wait in the lanes of *handler*."""
        return self._database.read(lambda c: queries.waiting(c, handler, address, limit))

    def standing(
        self, handler: str, /, *, limit: int, after: Address | None = None, blocked: bool = False
    ) -> Sequence[Standing]:
        """Lanes of *handler* in which something waits."""
        return self._database.read(
            lambda c: queries.standing(c, handler, after, limit, blocked=blocked)
        )

    def known(self) -> Sequence[Known]:
        """The handlers that have lanes."""
        return self._database.read(queries.known)

    def behind(self, letter_ids: Sequence[str], /) -> Mapping[str, int]:
        """The number of events that are parked behind each dead letter."""
        return self._database.read(lambda connection: queries.behind(connection, letter_ids))

    def skip_to(self, lane: Lane, sequence: int, /) -> Place:
        """Move *lane* on to *sequence*."""
        moving, now = self._moves, self._clock.now()
        return self._database.write(
            lambda c: waiting_events.skip_to(c, moving, lane, sequence, now)
        )

    def reset(self, handler: str, work: Callable[[Any], object] | None = None, /) -> int:
        """Let all lanes of *handler* begin anew; a million of them take a while."""
        self._database.prepare()
        with patient(self._engine) as engine, runs.transaction(engine) as connection:
            with runs.ours(connection):  # what a run amid it writes would stay
                shut(connection, handler)
            if work is not None:
                work(connection)
            with runs.ours(connection):
                return waiting_events.reset(connection, handler)

    def close(self) -> None:
        """Let the connections go."""
        self._database.close()


def _alone(engine: Engine) -> dict[str, Any]:
    """Options for transactions of one statement: PostgreSQL needs no BEGIN and COMMIT."""
    return {"isolation_level": "AUTOCOMMIT"} if engine.dialect.name == "postgresql" else {}


def _moved_before(connection: Connection, step: Step) -> Moved | Elsewhere:
    """The event that waits behind *step*, whose lane is just past it."""
    successor = waits_at(connection, step.lane, step.sequence + 1)
    is_parked = successor is not None and successor.why is Why.EARLY
    return Moved(successor if is_parked else None)


_keepers = ordering_keepers.c


class LaneDuty:
    """The statement by which keepers take turns, built once for an engine."""

    def __init__(self, engine: Engine) -> None:
        said = {
            "handlers": bindparam("names"),
            "keeper": bindparam("by"),
            "until": database_time_after(engine),
        }
        row = insert_into(engine, ordering_keepers).values(said)
        free = or_(_keepers.keeper == bindparam("by"), _keepers.until <= database_now(engine))
        mine = {"keeper": row.excluded.keeper, "until": row.excluded.until}
        taken = row.on_conflict_do_update(index_elements=["handlers"], set_=mine, where=free)
        self._take = taken.returning(_keepers.keeper)

    def take(
        self, connection: Connection, keeper: str, span: timedelta, handlers: Sequence[str]
    ) -> bool:
        """Let *keeper* be on duty for *span*, unless another one is; tell whether it is."""
        names = json.dumps(sorted(handlers)).encode()
        values = {
            "names": hashlib.sha256(names).hexdigest(),
            "by": to_text(keeper),
            "seconds": span.total_seconds(),
        }
        return connection.execute(self._take, values).first() is not None
