"""A projection on a real database, its event books, live writers and rebuilds, for tests.

Run as a program it rebuilds, and kills itself at the fault point that it is told.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Self
from uuid import uuid4

from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks, SqlEventStore
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.adapters.sql.rebuild.in_place import RebuildInPlace
from angzarr.adapters.sql.rebuild.shadow import SqlShadowTables
from angzarr.adapters.sql.rebuild.space import digest
from angzarr.aggregates.book import Address, Decision, Write
from angzarr.aggregates.decorators import handles
from angzarr.clock import SystemClock
from angzarr.errors import StoreUnavailable
from angzarr.events.event import Event
from angzarr.ordering.lane import Lane, Moved, Step
from angzarr.projections.projection import Projection, handler_name
from angzarr.projections.rebuild import Rebuild
from angzarr.projections.shadow_table import Plan

PATIENT = timedelta(seconds=30)
DOMAIN = "account"


class Balances(Projection):
    """Accounts, their bookings, and a sum over all of them that each booking reads and writes."""

    tables: ClassVar[Sequence[Any]] = ("accounts", "bookings", "sums")
    #: Data of events that cannot be handled.
    bad: ClassVar[set[int]] = set()

    def run(self, statement: str, **values: Any) -> Any:
        return self.connection.execute(text(statement), values)

    @handles("Opened")
    def opened(self, _data: Any) -> None:
        self.run("INSERT INTO accounts (id, balance) VALUES (:id, 0)", id=self.event.root)

    @handles("Booked")
    def booked(self, data: Any) -> None:
        if data in self.bad:
            msg = f"{data} cannot be booked"
            raise ValueError(msg)
        root = self.event.root
        self.run("UPDATE accounts SET balance = balance + :n WHERE id = :id", n=data, id=root)
        self.run("INSERT INTO bookings (account, amount) VALUES (:id, :n)", id=root, n=data)
        self.run("UPDATE sums SET total = total + :n WHERE name = 'all'", n=data)
        self.run(
            "INSERT INTO sums (name, total) SELECT 'all', :n"
            " WHERE NOT EXISTS (SELECT FROM sums)" if self.postgresql else
            "INSERT INTO sums (name, total) SELECT 'all', :n WHERE NOT EXISTS (SELECT 1 FROM sums)",
            n=data,
        )  # fmt: skip

    @handles("Closed")
    def closed(self, _data: Any) -> None:
        self.run("DELETE FROM accounts WHERE id = :id", id=self.event.root)

    @property
    def postgresql(self) -> bool:
        return bool(self.connection.dialect.name == "postgresql")


Balances.name = "balances"

_TABLES = {
    "postgresql": (
        """CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL CHECK (balance < 9999),
            twice int GENERATED ALWAYS AS (balance * 2) STORED)""",
        """CREATE TABLE bookings (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            account text NOT NULL REFERENCES accounts ON DELETE CASCADE, amount int NOT NULL,
            serial_number bigserial)""",
        "CREATE TABLE sums (name text PRIMARY KEY, total bigint NOT NULL)",
    ),
    "sqlite": (
        """CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL,
            twice int GENERATED ALWAYS AS (balance * 2) STORED)""",
        """CREATE TABLE bookings (id integer PRIMARY KEY AUTOINCREMENT,
            account text NOT NULL REFERENCES accounts ON DELETE CASCADE, amount int NOT NULL)""",
        "CREATE INDEX ix_bookings ON bookings (account)",
        "CREATE TABLE sums (name text PRIMARY KEY, total bigint NOT NULL)",
    ),
}


class World:
    """A database with event books, lanes and the read model of `kind`."""

    def __init__(self, url: str, kind: type[Projection] = Balances) -> None:
        self.url, self.kind = url, kind
        self.engine: Engine = build_engine(url, timeout=PATIENT, power_safe=False)
        self.books = SqlEventBooks(self.engine)
        self.store = SqlEventStore(self.engine)
        self.lanes = SqlLanes(self.engine)
        self.handler = handler_name(kind.name)
        self.plan = Plan(
            projection=kind.name,
            handler=self.handler,
            domains=(DOMAIN,),
            tables=kind.table_names(),
        )
        self.lanes.look(Lane(self.handler, Address(DOMAIN, "x")))
        self.books.read(Address(DOMAIN, "x"))

    def make(self) -> None:
        """Make the tables of the read model."""
        with self.engine.begin() as connection:
            for statement in _TABLES[self.engine.dialect.name]:
                connection.exec_driver_sql(statement)

    def close(self) -> None:
        self.engine.dispose()

    # -- events ------------------------------------------------------------------------------

    def append(self, root: str, *events: tuple[str, Any]) -> list[Event]:
        """Append events to a book; return them."""
        made = tuple(Event(id=str(uuid4()), type=kind, data=data) for kind, data in events)
        decision = Decision(cause=str(uuid4()), events=made)
        return list(
            self.books.write(
                Write(address=Address(DOMAIN, root), decision=decision)
            ).decision.events
        )

    def fill(self, accounts: int, bookings: int, seed: int = 1) -> list[Event]:
        """Append books that differ; some accounts are closed again."""
        chance, events = random.Random(seed), []
        for number in range(accounts):
            kinds: list[tuple[str, Any]] = [("Opened", None), ("Renamed", "unheeded")]
            kinds += [
                ("Booked", chance.randint(-50, 50)) for _ in range(chance.randint(0, bookings))
            ]
            kinds += [("Closed", None)] * (number % 7 == 3)
            events += self.append(f"{number:04d}-{uuid4().hex[:6]}", *kinds)
        return events

    # -- the live projection -----------------------------------------------------------------

    def handle(self, events: Sequence[Event]) -> None:
        """Let the live projection handle *events*, as a worker would: until each lane is past."""
        for event in events:
            self.handle_one(event)

    def handle_one(self, event: Event) -> None:
        address = Address(event.domain, event.root, event.edition or "")
        lane = Lane(self.handler, address)
        now, attempts = SystemClock().now(), 0
        step = Step(lane, event.sequence, event.id, event.type, event.occurred_at, now)
        while (place := self.lanes.look(lane).next_sequence) <= event.sequence:
            if place < event.sequence:  # a worker would park it
                time.sleep(0.005)
                continue
            try:
                if isinstance(self.lanes.run(step, lambda c: self.work(event, c)), Moved):
                    return
            except StoreUnavailable as away:  # a worker would postpone it
                if "being replaced" not in str(away):
                    raise
                time.sleep(0.005)
            except IntegrityError:  # its lane began anew meanwhile; a worker would retry it
                attempts += 1
                if attempts > 4:
                    raise

    def work(self, event: Event, connection: Any) -> None:
        if event.type in self.kind.methods.handles:
            self.kind(connection, event).project(self.kind.decoded(event))

    # -- rebuilds ----------------------------------------------------------------------------

    @contextmanager
    def green(self, *, in_place: bool = False) -> Iterator[SqlShadowTables]:
        clock = SystemClock()
        if in_place:

            def empty(connection: Any) -> None:
                self.kind(connection).reset()

            green: SqlShadowTables = RebuildInPlace(self.engine, self.plan, self.work, clock, empty)
        else:
            green = SqlShadowTables(self.engine, self.plan, self.work, clock)
        try:
            yield green
        finally:
            green.close()

    def rebuild(self, *, in_place: bool = False, **options: Any) -> Any:
        with self.green(in_place=in_place) as green:
            return Rebuild(
                plan=self.plan, store=self.store, green=green, clock=SystemClock(), **options
            ).run()

    def verify(self, **options: Any) -> Any:
        with self.green() as green:
            return Rebuild(
                plan=self.plan, store=self.store, green=green, clock=SystemClock(), **options
            ).verify()

    # -- what is to be compared --------------------------------------------------------------

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def digest(self) -> dict[str, Any]:
        """Return the digests of the live read model, without what the database numbers."""
        columns = {
            "accounts": ["id", "balance", "twice"],
            "bookings": ["account", "amount"],
            "sums": ["name", "total"],
        }
        with self.engine.connect() as connection:
            return {name: digest(connection, name, listed) for name, listed in columns.items()}

    def lane_places(self) -> dict[str, int]:
        found = self.rows("SELECT root, next_sequence FROM ordering_lanes")
        return dict(found)  # type: ignore[arg-type]


class Writers:
    """Threads that append events and handle them live until the block ends."""

    def __init__(self, world: World, number: int = 2) -> None:
        self._world = world
        self._stop = threading.Event()
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(number)]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for one in self._threads:
            one.join()

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        roots: list[str] = []
        try:
            while not self._stop.is_set():
                if not roots or chance.random() < 0.2:
                    roots.append(f"live-{number}-{len(roots)}-{uuid4().hex[:6]}")
                    events = self._world.append(roots[-1], ("Opened", None))
                else:
                    events = self._world.append(
                        chance.choice(roots), ("Booked", chance.randint(1, 9))
                    )
                self._world.handle(events)
                self.events += events
        except BaseException as error:
            self.errors.append(error)


def kill_at(fault: str) -> None:
    """Let this process kill itself when it comes to *fault*: ``name:count``."""
    name, _, count = fault.partition(":")
    left = int(count)

    def counted(before: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return before(*args, **options)

        return call

    import angzarr.adapters.sql.rebuild.shadow as module
    from angzarr.adapters.sql.rebuild import progress as green_progress
    from angzarr.adapters.sql.rebuild import space as green_copying
    from angzarr.adapters.sql.rebuild import store as green_lanes

    places = {
        "work": (World, "work"),
        "note": (green_progress, "note"),
        "begin": (green_progress, "start"),
        "empty": (Balances, "reset"),
        "emptied": (green_progress, "note_emptied"),
        "forgive": (green_progress, "forgive"),
        "copy": (green_copying, "copy"),
        "lanes": (green_lanes, "set_lanes"),
        "checkpoint": (green_lanes, "set_checkpoint"),
        "places": (module, "places"),
    }
    if name == "remove":
        from angzarr.adapters.sql.rebuild.postgresql import PostgresqlSpace
        from angzarr.adapters.sql.rebuild.sqlite import SqliteSpace

        for kind in (PostgresqlSpace, SqliteSpace):
            kind.removed = counted(kind.removed)  # type: ignore[method-assign]
        return
    owner, attribute = places[name]
    setattr(owner, attribute, counted(getattr(owner, attribute)))


if __name__ == "__main__":
    address, fault, how = sys.argv[1:]
    kill_at(fault)
    world = World(address)
    world.rebuild(batch=20, in_place=how == "in_place")
    world.close()
