"""Remembered writes on SQLite or PostgreSQL, beside the ledger: one transaction a step."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, or_, select, tuple_, update

from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import remembered_writes
from angzarr.analysis.ledger import idempotent_requests as rules
from angzarr.analysis.ledger.idempotent_requests import (
    KEPT,
    WRITE_LEASE,
    Found,
    RecordedAnswer,
    RequestBegun,
    RequestRecord,
    WriteKey,
    Writes,
)
from angzarr.clock import Clock, SystemClock

_writes = remembered_writes.c
#: What one step deletes at most of what is no longer kept.
_SWEPT: Final = 100


class SqlWrites(Writes):
    """Writes in a table of the ledger's database; safe to use from threads."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def begin(
        self, key: WriteKey, fingerprint: str, token: str, *, lease: timedelta = WRITE_LEASE
    ) -> Found:
        """Take the request, or say how it stands."""
        now = self._clock.now()
        fresh = rules.begun(fingerprint, token, now, lease)

        def step(connection: Connection) -> Found:
            stored = _held(connection, key, fresh)
            _sweep(connection, now, key)
            found = rules.found(stored, fingerprint, token, now)
            if isinstance(found, RequestBegun):
                _save(connection, key, replace(fresh, choice=found.choice))
            return found

        return self._database.write(step)

    def choose(self, key: WriteKey, token: str, choice: bytes) -> bool:
        """Remember what the request acts on."""

        def step(connection: Connection) -> bool:
            made = rules.chosen(_locked(connection, key), token, choice)
            if made is not None:
                _save(connection, key, made)
            return made is not None

        return self._database.write(step)

    def finish(
        self, key: WriteKey, token: str, answer: RecordedAnswer, *, keep: timedelta = KEPT
    ) -> bool:
        """Remember the answer."""

        def step(connection: Connection) -> bool:
            stored = _locked(connection, key)
            made = rules.answered(stored, token, answer, self._clock.now(), keep)
            if made is not None:
                _save(connection, key, made)
            return made is not None

        return self._database.write(step)

    def forget(self, key: WriteKey, token: str) -> bool:
        """Free the request."""

        def step(connection: Connection) -> bool:
            stored = _locked(connection, key)
            if stored is None or not rules.is_of(stored, token):
                return False
            kept = rules.freed(stored, self._clock.now())
            if kept is None:
                connection.execute(delete(remembered_writes).where(*_is(key)))
            else:
                _save(connection, key, kept)
            return True

        return self._database.write(step)

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


def _is(key: WriteKey) -> tuple[Any, Any]:
    return _writes.caller == key.caller, _writes.key == key.key


def _held(connection: Connection, key: WriteKey, fresh: RequestRecord) -> RequestRecord:
    """The record of the request, or *fresh*, locked until the transaction ends.

    What another one deletes while it is waited for is stored anew.
    """
    while (stored := _locked(connection, key)) is None:
        _insert(connection, key, fresh)
    return stored


def _insert(connection: Connection, key: WriteKey, write: RequestRecord) -> None:
    """Store *write* unless the key is known; two that do so at once wait for each other."""
    row = {**key._asdict(), **_columns(write)}
    connection.execute(
        insert_into(connection, remembered_writes).values(row).on_conflict_do_nothing()
    )


def _save(connection: Connection, key: WriteKey, write: RequestRecord) -> None:
    connection.execute(update(remembered_writes).where(*_is(key)).values(_columns(write)))


def _locked(connection: Connection, key: WriteKey) -> RequestRecord | None:
    row = connection.execute(
        select(remembered_writes).where(*_is(key)).with_for_update()
    ).one_or_none()
    return None if row is None else _write(row)


def _sweep(connection: Connection, now: datetime, besides: WriteKey) -> None:
    """Delete some of what is no longer kept, leaving to others what they lock just now."""
    names = (_writes.caller, _writes.key)
    answered = and_(_writes.until <= now, _writes.status.is_not(None))
    others = or_(_writes.caller != besides.caller, _writes.key != besides.key)
    over = or_(answered, _writes.until <= now - KEPT)
    gone = select(*names).where(over, others).limit(_SWEPT)
    chosen = gone.with_for_update(skip_locked=True)
    connection.execute(delete(remembered_writes).where(tuple_(*names).in_(chosen)))


def _columns(write: RequestRecord) -> dict[str, Any]:
    answer = write.answer
    return {
        "fingerprint": write.fingerprint,
        "token": write.token,
        "until": write.until,
        "status": answer.status if answer else None,
        "headers": [list(pair) for pair in answer.headers] if answer else None,
        "body": answer.body if answer else write.choice,
    }


def _write(row: Row[Any]) -> RequestRecord:
    answer, choice = None, None if row.body is None else bytes(row.body)
    if row.status is not None:
        headers = tuple((name, value) for name, value in row.headers)
        answer = RecordedAnswer(status=row.status, body=bytes(row.body), headers=headers)
        choice = None
    return RequestRecord(
        fingerprint=row.fingerprint,
        token=row.token,
        until=row.until,
        answer=answer,
        choice=choice,
    )
