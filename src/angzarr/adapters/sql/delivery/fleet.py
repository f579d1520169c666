"""The fleet in SQL: one row a member and one a release. Times are UTC.

First sights are measured by the database. Whose lease runs is asked of the claims' own table. These
tables are apart from it: who may not create them has no register, but keeps his claims.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

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
    select,
)

from angzarr.adapters.sql.delivery.claim_tables import ensure_tables, owner_leases
from angzarr.adapters.sql.engine.engine import create_missing, in_transaction, reading
from angzarr.adapters.sql.engine.statements import (
    database_now,
    database_time_after,
    insert_into,
    utc,
)
from angzarr.fleet import RELEASE_LIFE, SAID_LIFE, FleetRelease, Member, read_member, told_member

METADATA = MetaData()

_READY: weakref.WeakSet[Engine] = weakref.WeakSet()

#: `said` is the member as JSON.
fleet_members = Table(
    "fleet_members",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("said", Text, nullable=False),
    Column("said_at", DateTime(timezone=True), nullable=False, index=True),
)

fleet_releases = Table(
    "fleet_releases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False, index=True),
)


def ensure_fleet_tables(engine: Engine) -> None:
    """Create the tables before the first use of *engine* in this process, which may come late."""
    if engine not in _READY:
        create_missing(engine, METADATA)
        _READY.add(engine)


_Answer = TypeVar("_Answer")

#: Rows that one registration forgets at most, so that it holds no lock for long.
_FORGOTTEN = 1000

_members, _releases = fleet_members.c, fleet_releases.c


class SqlFleet:
    """Members in ``fleet_members`` beside ``owner_leases``, releases in ``fleet_releases``."""

    def __init__(
        self,
        engine: Engine,
        *,
        life: timedelta = RELEASE_LIFE,
        said_life: timedelta = SAID_LIFE,
    ) -> None:
        self._engine = engine
        self._life = life
        self._said_life = said_life
        self._statements = _FleetStatements(engine)

    def register(self, member: Member, /) -> None:
        """Keep what *member* says, and see its release, in one transaction."""
        sql, told = self._statements, {"owner_": member.owner, "said_": told_member(member)}

        def step(connection: Connection) -> None:
            connection.execute(sql.forget_said, {"seconds": -self._said_life.total_seconds()})
            connection.execute(sql.forget_releases, {"seconds": -self._life.total_seconds()})
            connection.execute(sql.say, told)
            if member.release:
                connection.execute(sql.see, {"name_": member.release})

        ensure_fleet_tables(self._engine)
        in_transaction(self._engine, step)

    def members(self) -> Sequence[Member]:
        """All whose lease runs, by owner."""
        ensure_tables(self._engine)
        rows = self._read(lambda c: c.execute(self._statements.members).all())
        found = (read_member(row.owner, row.said) for row in rows)
        return sorted((one for one in found if one is not None), key=lambda member: member.owner)

    def releases(self) -> Sequence[FleetRelease]:
        """All releases, in the order in which they were first seen."""
        query = select(fleet_releases).order_by(_releases.first_seen_at, _releases.name)
        return [
            FleetRelease(
                name=row.name,
                first_seen_at=utc(row.first_seen_at),
                last_seen_at=utc(row.last_seen_at),
            )
            for row in self._read(lambda c: c.execute(query).all())
        ]

    def _read(self, step: Callable[[Connection], _Answer]) -> _Answer:
        ensure_fleet_tables(self._engine)
        return in_transaction(reading(self._engine), step)


class _FleetStatements:
    """The SQL of the fleet, built once."""

    def __init__(self, engine: Engine) -> None:
        now, before = database_now(engine), database_time_after(engine)  # a negative span
        said = {"said": bindparam("said_", type_=Text), "said_at": now}
        self.say = (
            insert_into(engine, fleet_members)
            .values({"owner": bindparam("owner_", type_=Text), **said})
            .on_conflict_do_update(index_elements=["owner"], set_=said)
        )
        self.see = (
            insert_into(engine, fleet_releases)
            .values({"name": bindparam("name_"), "first_seen_at": now, "last_seen_at": now})
            .on_conflict_do_update(index_elements=["name"], set_={"last_seen_at": now})
        )
        self.members = (
            select(_members.owner, _members.said)
            .join(owner_leases, owner_leases.c.owner == _members.owner)
            .where(owner_leases.c.expires_at > now)
        )
        self.forget_said = _forget(fleet_members, _members.owner, _members.said_at <= before)
        self.forget_releases = _forget(
            fleet_releases, _releases.name, _releases.last_seen_at <= before
        )


def _forget(table: Table, key: Column[Any], old: Any) -> Any:
    """Delete old rows, leaving to their users those that are locked just now."""
    found = select(key).where(old).limit(_FORGOTTEN).with_for_update(skip_locked=True)
    return delete(table).where(key.in_(found.scalar_subquery()))
