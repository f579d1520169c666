"""Claims and owner leases in SQL: one transaction a step, the pure rules around a locked row.

On PostgreSQL the row is locked by the upsert or FOR UPDATE, on SQLite the whole database is
(BEGIN IMMEDIATE). The database measures all spans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Executable,
    Row,
    Table,
    bindparam,
    delete,
    select,
    update,
)

from angzarr.adapters.sql.delivery.claim_tables import (
    ensure_tables,
    finished_steps,
    idempotency_keys,
    owner_leases,
)
from angzarr.adapters.sql.delivery.fact_outbox import PutIf, PutWith, SqlFactOutbox
from angzarr.adapters.sql.delivery.payload_holders import release_in
from angzarr.adapters.sql.engine.engine import in_transaction
from angzarr.adapters.sql.engine.statements import database_now, database_time_after, insert_into
from angzarr.resilience.idempotency import (
    RECORD_LIFE,
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimEnd,
    Complete,
    Ending,
    InProgress,
    Position,
    released_by,
)
from angzarr.resilience.idempotency_rules import (
    ClaimStatus,
    Record,
    answer_of,
    ended,
    held_by,
    holds,
    life_after,
    starts_of,
    was_ended,
)

_Answer = TypeVar("_Answer")

_WRITTEN = ("status", "token", "owner", "replay", "hop", "starts", "fingerprint", "result")
_keys, _steps = idempotency_keys.c, finished_steps.c


class SqlOwnerLeases:
    """Owner leases, one row each in ``owner_leases``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        until = database_time_after(engine)
        values = {"owner": bindparam("name"), "expires_at": until}
        self._renew = (
            insert_into(engine, owner_leases)
            .values(values)
            .on_conflict_do_update(index_elements=["owner"], set_={"expires_at": until})
        )

    def renew(self, owner: str, span: timedelta, /) -> None:
        """Let *owner*'s lease end *span* from now."""
        self._run(self._renew, {"name": owner, "seconds": span.total_seconds()})

    def end(self, owner: str, /) -> None:
        """End *owner*'s lease now."""
        self._run(delete(owner_leases).where(owner_leases.c.owner == owner), {})

    def sweep(self, limit: int = 1000) -> int:
        """Delete at most *limit* leases that have run out and return how many."""
        return _sweep(self._engine, owner_leases, owner_leases.c.owner, limit)

    def _run(self, statement: Executable, parameters: dict[str, Any]) -> None:
        _step(self._engine, lambda connection: connection.execute(statement, parameters))


class SqlIdempotencyStore:
    """Claims, one row each in ``idempotency_keys``; an expired row counts as none.

    *life* is how long a pending or released record is kept after it was last touched.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        life: timedelta = RECORD_LIFE,
        outbox: SqlFactOutbox | None = None,
    ) -> None:
        self._engine = engine
        self._life = life
        #: Facts of settled claims, for a relay.
        self.outbox = outbox or SqlFactOutbox(engine)
        self._statements = _ClaimStatements(engine)

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer each claim in order, all in one transaction, or none of them.

        Rows are locked in the order of their keys, so that two batches never wait for each other.
        """
        order = sorted(range(len(claims)), key=lambda i: claims[i].key)

        def step(connection: Connection) -> list[ClaimAnswer]:
            answers = {i: self._claim(connection, claims[i]) for i in order}
            return [answers[i] for i in range(len(claims))]

        return _step(self._engine, step) if claims else []

    def owns(self, key: str, token: str, /, facts: Sequence[str] = ()) -> bool:
        """True if the delivery with *token* still holds *key*; its *facts* are kept then."""
        held = {"name": key, "by_token": token}
        return _step(self._engine, lambda c: self._statements.put_if_held(c, held, facts))

    def settle(self, key: str, token: str, ending: Ending, /, facts: Sequence[str] = ()) -> bool:
        """End the claim of *token*, or change nothing and return False."""
        return self.settle_all([ClaimEnd(key, token, ending, facts)])[0]

    def settle_all(self, ends: Sequence[ClaimEnd], /) -> list[bool]:
        """End each claim in one transaction, or none of them; rows are locked as by `claim`."""
        order = sorted(range(len(ends)), key=lambda i: ends[i].key)

        def step(connection: Connection) -> list[bool]:
            done = {i: self._settle(connection, ends[i]) for i in order}
            # Behind all claims, in an order of their own: two batches may share bodies.
            ours = [end.ending for i, end in enumerate(ends) if done[i]]
            release_in(connection, [hold for one in ours if (hold := released_by(one))])
            return [done[i] for i in range(len(ends))]

        return _step(self._engine, step) if ends else []

    def sweep(self, limit: int = 1000) -> int:
        """Delete at most *limit* expired records and return how many."""
        return _sweep(self._engine, idempotency_keys, _keys.key, limit)

    def _claim(self, connection: Connection, claim: Claim) -> ClaimAnswer:
        starts = starts_of(claim)
        fresh = _values(claim.key, held_by(claim, starts, None), self._life)
        if connection.execute(self._statements.insert_fresh, fresh).first():
            return Claimed(starts=starts)
        record = self._locked(connection, claim.key)
        answer = answer_of(record, claim, partial(self._alive, connection))
        if isinstance(answer, Claimed):
            self._write(connection, claim.key, held_by(claim, answer.starts, record), self._life)
            here = {"name": claim.key, "at_replay": claim.position.replay}
            if connection.execute(self._statements.find_steps, here).first() is not None:
                return replace(answer, steps=True)
        elif isinstance(answer, InProgress) and record:
            self._write(connection, claim.key, record, self._life)
        return answer

    def _settle(self, connection: Connection, end: ClaimEnd) -> bool:
        key, token, ending, facts = end
        record = self._locked(connection, key)
        if record is None or not holds(record, token):
            return was_ended(record, token, ending)
        values = _values(key, ended(record, ending), life_after(ending, self._life))
        if facts:
            self._statements.write_with_facts(connection, values, facts)
        else:
            connection.execute(self._statements.write, values)
        if isinstance(ending, Complete) and ending.steps is not None:
            here = {"name": key, "at_replay": ending.steps}
            connection.execute(self._statements.forget_steps, here)
        return True

    def _locked(self, connection: Connection, key: str) -> Record | None:
        row = connection.execute(self._statements.lock, {"name": key}).first()
        return None if row is None else _record(row)

    def _alive(self, connection: Connection, owner: str) -> bool:
        """Ask in a statement of its own: one begun before the row was locked sees old leases."""
        return connection.execute(self._statements.alive, {"name": owner}).first() is not None

    def _write(self, connection: Connection, key: str, record: Record, life: timedelta) -> None:
        connection.execute(self._statements.write, _values(key, record, life))


class _ClaimStatements:
    """The SQL of the store, built once; parameters are those of `_values`."""

    def __init__(self, engine: Engine) -> None:
        now, until = database_now(engine), database_time_after(engine)
        written: dict[str, Any] = {name: bindparam(f"new_{name}") for name in _WRITTEN}
        written["expires_at"] = until
        row = written | {"key": bindparam("name"), "created_at": now}
        #: Returns a row if there was none, or an expired one; locks the row in any case.
        self.insert_fresh = (
            insert_into(engine, idempotency_keys)
            .values(row)
            .on_conflict_do_update(
                index_elements=["key"],
                set_=written | {"created_at": now},
                where=_keys.expires_at <= now,
            )
            .returning(_keys.key)
        )
        here = _keys.key == bindparam("name")
        self.lock = (
            select(*(_keys[name] for name in _WRITTEN))
            .where(here, _keys.expires_at > now)
            .with_for_update()
        )
        pending = _keys.status == ClaimStatus.PENDING.value
        #: Locks the row of a claim that a token holds, and puts facts then, in one round trip.
        self.put_if_held = PutIf(
            engine, self.lock.where(pending, _keys.token == bindparam("by_token"))
        )
        log = _steps.key == bindparam("name"), _steps.replay == bindparam("at_replay")
        #: In a statement of its own, as `alive` is.
        self.find_steps = select(_steps.name).where(*log, _steps.expires_at > now).limit(1)
        self.forget_steps = delete(finished_steps).where(*log)
        self.write = update(idempotency_keys).where(here).values(written)
        #: The same, which keeps facts too, in one round trip.
        self.write_with_facts = PutWith(engine, self.write)
        self.alive = select(owner_leases.c.owner).where(
            owner_leases.c.owner == bindparam("name"), owner_leases.c.expires_at > now
        )


def _step(engine: Engine, step: Callable[[Connection], _Answer]) -> _Answer:
    ensure_tables(engine)
    return in_transaction(engine, step)


def _values(key: str, record: Record, life: timedelta) -> dict[str, Any]:
    return {
        "name": key,
        "new_status": record.status.value,
        "new_token": record.token,
        "new_owner": record.owner,
        "new_replay": record.position.replay,
        "new_hop": record.position.hop,
        "new_starts": record.starts,
        "new_fingerprint": record.fingerprint,
        "new_result": record.result,
        "seconds": life.total_seconds(),
    }


def _record(row: Row[Any]) -> Record:
    return Record(
        status=ClaimStatus(row.status),
        token=row.token,
        owner=row.owner,
        position=Position(row.replay, row.hop),
        starts=row.starts,
        fingerprint=row.fingerprint,
        result=row.result,
    )


def _sweep(engine: Engine, table: Table, key: Column[Any], limit: int) -> int:
    """Delete expired rows, leaving to their users those that are locked just now."""
    expired = (
        select(key)
        .where(table.c.expires_at <= database_now(engine))
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    statement = delete(table).where(key.in_(expired.scalar_subquery()))
    return _step(engine, lambda connection: connection.execute(statement).rowcount)
