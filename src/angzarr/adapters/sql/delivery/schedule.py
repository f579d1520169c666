"""The schedule in SQL: one row a waiting message, one transaction a verb.

Waits are measured by the database. Movers do not wait for each other: on PostgreSQL they skip
rows that another one is just taking, on SQLite (BEGIN IMMEDIATE) they take turns, and only when
something is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection, Engine, bindparam, delete, func, select, update

from angzarr.adapters.sql.delivery.claim_tables import ensure_tables, waiting_messages
from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.adapters.sql.engine.statements import database_now, database_time_after, insert_into
from angzarr.clock import Clock, SystemClock
from angzarr.delivery.schedule import Row, TakenRows, row_of
from angzarr.events.event import Message

_Answer = TypeVar("_Answer")

_waiting = waiting_messages.c


class SqlSchedule:
    """Messages that wait in ``waiting_messages``."""

    def __init__(self, engine: Engine, *, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self._statements = _ScheduleStatements(engine)

    def put(self, copy: Message, at: datetime, /) -> None:
        """Let *copy* wait until *at*; a row that a mover has is its no longer."""
        row = row_of(copy)
        wait = max(at - self._clock.now(), timedelta(0))
        values = {"name": row.id, "text": row.text, "seconds": wait.total_seconds()}
        self._step(lambda connection: connection.execute(self._statements.put, values))

    def take(self, token: str, limit: int, lease: timedelta, /) -> TakenRows:
        """Lend what is due. Looks first, without a lock: mostly nothing is."""
        seen = self._read(lambda connection: self._look(connection, token))
        if seen.rows or seen.next_in is None or seen.next_in > timedelta(0):
            return seen
        return self._step(lambda connection: self._lend(connection, token, limit, lease))

    def done(self, token: str, ids: Sequence[str], /) -> None:
        """Delete what *token* still holds."""
        held = delete(waiting_messages).where(_waiting.token == token, _waiting.id.in_(ids))
        self._step(lambda connection: connection.execute(held))

    def give_back(self, token: str, ids: Sequence[str], pause: timedelta, /) -> None:
        """Let what *token* still holds be due after *pause*."""
        held = self._statements.let_go.where(_waiting.token == token, _waiting.id.in_(ids))
        seconds = {"seconds": pause.total_seconds()}
        self._step(lambda connection: connection.execute(held, seconds))

    def close(self) -> None:
        """Close the connections; the schedule can still be used and opens new ones."""
        self._engine.dispose()

    def _lend(self, connection: Connection, token: str, limit: int, lease: timedelta) -> TakenRows:
        due = connection.execute(self._statements.due.limit(limit)).all()
        if due:
            taken = self._statements.lend.where(_waiting.id.in_([row.id for row in due]))
            connection.execute(taken, {"by": token, "seconds": lease.total_seconds()})
        return TakenRows([Row(row.id, row.message) for row in due], self._next_in(connection))

    def _look(self, connection: Connection, token: str) -> TakenRows:
        """The rows that *token* has already, and when the next one is due."""
        if (next_in := self._next_in(connection)) is None:
            return TakenRows((), None)
        held = connection.execute(self._statements.held, {"by": token})
        return TakenRows([Row(row.id, row.message) for row in held], next_in)

    def _next_in(self, connection: Connection) -> timedelta | None:
        first, now = connection.execute(self._statements.first).one()
        return None if first is None else first - now

    def _read(self, step: Callable[[Connection], _Answer]) -> _Answer:
        ensure_tables(self._engine)
        return in_transaction(reading(self._engine), step)

    def _step(self, step: Callable[[Connection], _Answer]) -> _Answer:
        ensure_tables(self._engine)
        return in_transaction(self._engine, step)


class _ScheduleStatements:
    """The SQL of the schedule, built once."""

    def __init__(self, engine: Engine) -> None:
        now, until = database_now(engine), database_time_after(engine)
        # PostgreSQL uses no index for what changes within a statement.
        begun = func.now() if engine.dialect.name == "postgresql" else now
        row = {"due_at": until, "token": "", "message": bindparam("text")}
        self.put = (
            insert_into(engine, waiting_messages)
            .values({"id": bindparam("name"), **row})
            .on_conflict_do_update(index_elements=["id"], set_=row)
        )
        self.first = select(func.min(_waiting.due_at), now)
        self.held = select(_waiting.id, _waiting.message).where(
            _waiting.token == bindparam("by"), _waiting.due_at > begun
        )
        self.due = (
            select(_waiting.id, _waiting.message)
            .where(_waiting.due_at <= begun)
            .order_by(_waiting.due_at)
            .with_for_update(skip_locked=True)
        )
        self.lend = update(waiting_messages).values(token=bindparam("by"), due_at=until)
        self.let_go = update(waiting_messages).values(token="", due_at=until)
