"""The register of bodies in SQL, beside the claims: who holds them, and which are free (spec F4).

A claim's ending releases in its own transaction. Rows of bodies are locked in the order of their
URIs, and behind all claims, so that no two transactions wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, delete, exists, func, select, update

from angzarr.adapters.sql.delivery.claim_tables import (
    ensure_tables,
    payload_holders,
    stored_payloads,
)
from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.adapters.sql.engine.statements import (
    among,
    database_now,
    database_time_after,
    insert_into,
)
from angzarr.payloads.collector import BATCH, PayloadCount, PayloadState, RegisteredPayload
from angzarr.payloads.holders import PayloadHold

_Answer = TypeVar("_Answer")

_bodies, _holds = stored_payloads.c, payload_holders.c
_GONE: Final = PayloadState.CONDEMNED.value


class SqlPayloadHolders:
    """Fulfils `PayloadHolders` and `PayloadRegister`, in ``stored_payloads`` and its holders."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._now = database_now(engine)
        self._since = database_time_after(engine)

    def hold(self, address: str, size: int, holder: str, /, *, fresh: str) -> str:
        """Register *holder*, and return the URI to put the body at."""
        current = select(_bodies.uri).where(_bodies.address == address, _bodies.state != _GONE)
        current = current.order_by(_bodies.uri).limit(1).with_for_update()
        row = {"uri": fresh, "address": address, "size": size, "state": PayloadState.HELD.value}
        new = insert_into(self._engine, stored_payloads).values(**row, since=self._now)

        def step(connection: Connection) -> str:
            uri = connection.scalar(current)
            if uri is None:
                connection.execute(new.on_conflict_do_nothing())
            self._add(connection, uri or fresh, holder)
            return uri or fresh

        return self._write(step)

    def join(self, holds: Sequence[PayloadHold], /) -> list[bool]:
        """Register *holds* of bodies that are registered."""

        def step(connection: Connection) -> list[bool]:
            there = _locked(connection, [hold.uri for hold in holds])
            for uri, holder in sorted(set(holds)):
                if uri in there:
                    self._add(connection, uri, holder)
            return [hold.uri in there for hold in holds]

        return self._write(step) if holds else []

    def release(self, holds: Sequence[PayloadHold], /) -> None:
        """End *holds*."""
        if holds:
            self._write(lambda connection: release_in(connection, holds))

    def find(
        self, state: PayloadState, longer_than: timedelta, /, *, limit: int, skip: int = 0
    ) -> list[RegisteredPayload]:
        """Bodies in *state*, the longest first."""
        of_body = select(func.count()).where(_holds.uri == _bodies.uri).scalar_subquery()
        one = select(func.min(_holds.holder)).where(_holds.uri == _bodies.uri).scalar_subquery()
        wanted = (
            select(_bodies.uri, _bodies.size, _bodies.since, self._now, of_body, one)
            .where(_bodies.state == state.value, _bodies.since <= self._since)
            .order_by(_bodies.since, _bodies.uri)
            .limit(limit)
            .offset(skip)
        )
        span = {"seconds": -longer_than.total_seconds()}
        ensure_tables(self._engine)
        rows = in_transaction(
            reading(self._engine), lambda connection: connection.execute(wanted, span).all()
        )
        return [
            RegisteredPayload(uri, size, state, now - since, holders, holder or "")
            for uri, size, since, now, holders, holder in rows
        ]

    def condemn(
        self, uris: Sequence[str], state: PayloadState, longer_than: timedelta, /
    ) -> list[str]:
        """Condemn those that still are in *state*; one that is locked just now is not."""
        span = {"seconds": -longer_than.total_seconds()}

        def step(connection: Connection) -> list[str]:
            wanted = select(_bodies.uri).where(
                among(connection, _bodies.uri, uris),
                _bodies.state == state.value,
                _bodies.since <= self._since,
            )
            locking = wanted.order_by(_bodies.uri).with_for_update(skip_locked=True)
            found = list(connection.scalars(locking, span))
            if state is not PayloadState.CONDEMNED and found:
                gone = update(stored_payloads).where(among(connection, _bodies.uri, found))
                connection.execute(gone.values(state=_GONE, since=self._now))
                connection.execute(
                    delete(payload_holders).where(among(connection, _holds.uri, found))
                )
            return found

        return self._write(step) if uris else []

    def forget(self, uris: Sequence[str], /) -> None:
        """Forget condemned bodies."""

        def step(connection: Connection) -> None:
            gone = delete(stored_payloads).where(among(connection, _bodies.uri, uris))
            connection.execute(gone.where(_bodies.state == _GONE))

        if uris:
            self._write(step)

    def known(self, uris: Sequence[str], /) -> set[str]:
        """Those of *uris* that are registered."""

        def step(connection: Connection) -> set[str]:
            wanted = select(_bodies.uri).where(among(connection, _bodies.uri, uris))
            return set(connection.scalars(wanted))

        ensure_tables(self._engine)
        return in_transaction(reading(self._engine), step) if uris else set()

    def holders_of(self, uri: str, /, *, limit: int = BATCH) -> set[str]:
        """Those who hold the body at *uri*."""
        wanted = select(_holds.holder).where(_holds.uri == uri).order_by(_holds.holder)
        ensure_tables(self._engine)
        return in_transaction(
            reading(self._engine), lambda one: set(one.scalars(wanted.limit(limit)))
        )

    def count(self) -> dict[PayloadState, PayloadCount]:
        """How many bodies are in each state."""
        wanted = select(_bodies.state, func.count(), func.sum(_bodies.size))
        wanted = wanted.group_by(_bodies.state)
        ensure_tables(self._engine)
        rows = in_transaction(reading(self._engine), lambda one: one.execute(wanted).all())
        found = {state: PayloadCount(bodies, int(size)) for state, bodies, size in rows}
        return {state: found.get(state.value, PayloadCount()) for state in PayloadState}

    def _add(self, connection: Connection, uri: str, holder: str) -> None:
        """Add *holder* to the body at *uri*, whose row is locked."""
        added = insert_into(self._engine, payload_holders).values(uri=uri, holder=holder)
        connection.execute(added.on_conflict_do_nothing())
        held = update(stored_payloads).where(_bodies.uri == uri)
        connection.execute(held.values(state=PayloadState.HELD.value, since=self._now))

    def _write(self, step: Callable[[Connection], _Answer]) -> _Answer:
        ensure_tables(self._engine)
        return in_transaction(self._engine, step)


def release_in(connection: Connection, holds: Sequence[PayloadHold]) -> None:
    """End *holds* in the transaction of *connection*; asks nothing where there are none."""
    if not holds:
        return
    there = _locked(connection, [hold.uri for hold in holds])
    for uri, holder in sorted(set(holds)):
        if uri in there:
            one = delete(payload_holders).where(_holds.uri == uri, _holds.holder == holder)
            if connection.execute(one).rowcount:
                _free(connection, uri)


def _free(connection: Connection, uri: str) -> None:
    """Let the body at *uri*, whose row is locked, be free, unless another holds it still."""
    free = update(stored_payloads).where(_bodies.uri == uri, ~exists().where(_holds.uri == uri))
    now = database_now(connection.engine)
    connection.execute(free.values(state=PayloadState.FREE.value, since=now))


def _locked(connection: Connection, uris: Sequence[str]) -> set[str]:
    """Those of *uris* that are registered and not condemned; their rows are locked, in order."""
    wanted = select(_bodies.uri).where(among(connection, _bodies.uri, uris), _bodies.state != _GONE)
    return set(connection.scalars(wanted.order_by(_bodies.uri).with_for_update()))
