"""Logs of finished steps in SQL: a row each in ``finished_steps``, written under the claim's row.

Who changes a log locks the record of its claim first, as who claims does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from angzarr.adapters.sql.delivery.claim_tables import (
    ensure_tables,
    finished_steps,
    idempotency_keys,
)
from angzarr.adapters.sql.engine.engine import in_transaction
from angzarr.adapters.sql.engine.statements import database_now, database_time_after
from angzarr.delivery.compensation import (
    LOG_LIFE,
    MOST_STEPS,
    FinishedStep,
    Logged,
    StepLogKey,
    too_many,
)
from angzarr.resilience.idempotency_rules import ClaimStatus

_Answer = TypeVar("_Answer")

_keys, _steps = idempotency_keys.c, finished_steps.c


class SqlStepLog:
    """Logs of the claims in *engine*'s database, each kept for *life* after its last step."""

    def __init__(self, engine: Engine, *, life: timedelta = LOG_LIFE) -> None:
        self._engine = engine
        self._now, self._until = database_now(engine), database_time_after(engine)
        self._span = {"seconds": life.total_seconds()}

    def add(self, place: StepLogKey, step: FinishedStep, /) -> bool:
        """Write *step* last, in place of one of its name."""

        def write(connection: Connection) -> bool:
            here = _at(place)
            gone = and_(here, (_steps.name == step.name) | (_steps.expires_at <= self._now))
            connection.execute(delete(finished_steps).where(gone))
            told = select(func.count(), func.max(_steps.number)).where(here)
            count, last = connection.execute(told).one()
            if count >= MOST_STEPS:
                raise too_many(step.name)
            kept = {"undoing": None, "expires_at": self._until}
            connection.execute(update(finished_steps).where(here).values(kept), self._span)
            row = {"key": place.key, "replay": place.replay, "number": (last or 0) + 1}
            row |= kept | {"name": step.name, "undo": step.undo, "data": step.data}
            connection.execute(insert(finished_steps).values(row), self._span)
            return True

        return bool(self._while_held(place, write))

    def read(self, place: StepLogKey, /) -> Logged:
        """The steps in the log."""
        return self._in_transaction(lambda connection: self._read(connection, place))

    def mark_undoing(
        self, place: StepLogKey, cause: str | None, /
    ) -> Sequence[FinishedStep] | None:
        """Note whether the steps are being undone, and return them."""

        def mark(connection: Connection) -> Sequence[FinishedStep]:
            noted = update(finished_steps).where(_at(place)).values(undoing=cause)
            connection.execute(noted)
            return self._read(connection, place).steps

        return self._while_held(place, mark)

    def remove(self, place: StepLogKey, name: str, /) -> bool:
        """Forget the step *name*."""

        def forget(connection: Connection) -> bool:
            connection.execute(delete(finished_steps).where(_at(place), _steps.name == name))
            return True

        return bool(self._while_held(place, forget))

    def sweep(self, limit: int = 1000) -> int:
        """Delete at most *limit* steps whose time is over, and return how many."""
        one = (_steps.key, _steps.replay, _steps.name)
        over = (
            select(*one)
            .where(_steps.expires_at <= self._now)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        swept = delete(finished_steps).where(tuple_(*one).in_(over))
        return self._in_transaction(lambda connection: connection.execute(swept).rowcount)

    def _read(self, connection: Connection, place: StepLogKey) -> Logged:
        rows = connection.execute(
            select(_steps.name, _steps.undo, _steps.data, _steps.undoing)
            .where(_at(place), _steps.expires_at > self._now)
            .order_by(_steps.number)
        ).all()
        return Logged(tuple(_step(row) for row in rows), rows[0].undoing if rows else None)

    def _while_held(
        self, place: StepLogKey, step: Callable[[Connection], _Answer]
    ) -> _Answer | None:
        """The answer of *step*, run while the record is locked; None if the claim is lost."""
        held = (
            select(_keys.key)
            .where(
                _keys.key == place.key,
                _keys.expires_at > self._now,
                _keys.token == place.token,
                _keys.status == ClaimStatus.PENDING.value,
            )
            .with_for_update()
        )

        def guarded(connection: Connection) -> _Answer | None:
            return step(connection) if connection.execute(held).first() else None

        return self._in_transaction(guarded)

    def _in_transaction(self, step: Callable[[Connection], _Answer]) -> _Answer:
        ensure_tables(self._engine)
        return in_transaction(self._engine, step)


def _at(place: StepLogKey) -> ColumnElement[bool]:
    return and_(_steps.key == place.key, _steps.replay == place.replay)


def _step(row: Any) -> FinishedStep:
    return FinishedStep(row.name, row.undo, row.data)
