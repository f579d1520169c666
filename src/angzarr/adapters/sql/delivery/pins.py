"""Pins of events in SQL: a row for each configuration that an event is pinned to.

The table is apart from that of the claims, in their database: it is made when a handler first reads
a configuration.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    inspect,
    select,
    tuple_,
    update,
)

from angzarr.adapters.sql.engine.engine import create_missing, in_transaction, reading
from angzarr.adapters.sql.engine.statements import (
    database_now,
    database_time_after,
    insert_into,
)
from angzarr.configuration.pins import PIN_LIFE

METADATA = MetaData()

_READY: weakref.WeakSet[Engine] = weakref.WeakSet()

configuration_pins = Table(
    "configuration_pins",
    METADATA,
    # That of the claim.
    Column("key", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
)

_pins = configuration_pins.c


class SqlPinStore:
    """Pins in ``configuration_pins``, each kept for *life* after a run last kept some."""

    def __init__(self, engine: Engine, *, life: timedelta = PIN_LIFE) -> None:
        self._engine = engine
        now, until = database_now(engine), database_time_after(engine)
        self._span = {"seconds": life.total_seconds()}
        one = _pins.key == bindparam("key_", type_=Text)
        self._read = select(_pins.id, _pins.version).where(one, _pins.expires_at > now)
        self._forget = delete(configuration_pins).where(one, _pins.expires_at <= now)
        self._renew = update(configuration_pins).where(one).values(expires_at=until)
        values = {
            "key": bindparam("key_", type_=Text),
            "id": bindparam("id_", type_=Text),
            "version": bindparam("version_", type_=Text),
            "expires_at": until,
        }
        self._add = insert_into(engine, configuration_pins).values(values).on_conflict_do_nothing()
        over = (
            select(_pins.key, _pins.id)
            .where(_pins.expires_at <= now)
            .limit(bindparam("most"))
            .with_for_update(skip_locked=True)
        )
        self._sweep = delete(configuration_pins).where(tuple_(_pins.key, _pins.id).in_(over))

    def keep(self, key: str, pins: Mapping[str, str], /) -> Mapping[str, str]:
        """Keep what *key* has no pin for, in one transaction, and return all."""

        def step(connection: Connection) -> Mapping[str, str]:
            named = {"key_": key}
            connection.execute(self._forget, named)
            for name, version in sorted(pins.items()):  # in one order: no deadlock
                row = named | {"id_": name, "version_": version}
                connection.execute(self._add, row | self._span)
            connection.execute(self._renew, named | self._span)
            return _by_id(connection.execute(self._read, named).all())

        if self._engine not in _READY:
            create_missing(self._engine, METADATA)
            _READY.add(self._engine)
        return in_transaction(self._engine, step)

    def read(self, key: str, /) -> Mapping[str, str]:
        """All pins under *key*."""

        def step(connection: Connection) -> Mapping[str, str]:
            return _by_id(connection.execute(self._read, {"key_": key}).all())

        if self._engine not in _READY and not self._is_there():
            return {}
        return in_transaction(reading(self._engine), step)

    def sweep(self, limit: int = 1000) -> int:
        """Delete at most *limit* pins whose time is over, and return how many."""

        def step(connection: Connection) -> int:
            return connection.execute(self._sweep, {"most": limit}).rowcount

        if self._engine not in _READY and not self._is_there():
            return 0
        return in_transaction(self._engine, step)

    def _is_there(self) -> bool:
        """True if its table is there; who reads no configuration has none, and needs no right."""
        name = configuration_pins.name
        found = in_transaction(reading(self._engine), lambda one: inspect(one).has_table(name))
        if found:
            _READY.add(self._engine)
        return found


def _by_id(rows: Iterable[Any]) -> dict[str, str]:
    return {row.id: row.version for row in rows}
