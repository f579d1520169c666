"""Shadow tables in SQL: batches of events and their places, one transaction each (spec P4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, Transaction
from sqlalchemy.exc import IntegrityError

from angzarr.adapters.sql.engine.engine import unavailable_as
from angzarr.adapters.sql.engine.error_hints import is_busy, is_trouble
from angzarr.adapters.sql.ordering.runs import shut
from angzarr.adapters.sql.rebuild import progress as green_progress
from angzarr.adapters.sql.rebuild import space as green_copying
from angzarr.adapters.sql.rebuild import space as green_saying
from angzarr.adapters.sql.rebuild import store as green_lanes
from angzarr.adapters.sql.rebuild.postgresql import PostgresqlSpace
from angzarr.adapters.sql.rebuild.progress import angzarr_rebuild_places, places, put_places
from angzarr.adapters.sql.rebuild.space import Layout, Space
from angzarr.adapters.sql.rebuild.sqlite import SqliteSpace
from angzarr.aggregates.book import Address, Head
from angzarr.clock import Clock
from angzarr.errors import RebuildError, StoreUnavailable
from angzarr.events.event import Event
from angzarr.projections.rebuild_events import head_after, head_of
from angzarr.projections.shadow_table import (
    Abandoned,
    Ahead,
    Applied,
    Broken,
    Busy,
    Compared,
    Failure,
    Fill,
    Plan,
    Progress,
    ShadowTable,
    SwitchedOver,
    TransactionEnded,
)

#: Handles an event by what it writes to a connection.
Work: TypeAlias = Callable[[Event, Any], object]


class RebuildUndone(Exception):
    """Rolls a batch back; says why."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken)
        self.broken = broken


def handled(
    events: Sequence[Event],
    known: dict[Address, int],
    work: Work,
    plan: Plan,
    amid: tuple[Connection, Transaction],
) -> Iterator[Event]:
    """Do *work* for *events* that are not before their places, and yield each.

    *known* is moved along. Raises Undone, and TransactionEnded where *work* ended the transaction
    that it is *amid*.
    """
    connection, begun = amid
    for index, event in enumerate(events):
        address, sequence = head_of(event)
        if sequence < known.get(address, plan.first):
            continue
        try:
            work(event, connection)
        except Exception as error:
            if is_trouble(error):
                raise
            raise RebuildUndone(Broken(index, error)) from error
        finally:
            if not (begun.is_active or connection.invalidated):
                raise TransactionEnded(green_saying.ended(plan, event))
        known[address] = sequence + 1
        yield event


_Answer = TypeVar("_Answer")


class SqlShadowTables(ShadowTable):
    """The space of *plan* in *engine*'s database, where the tables of lanes are, for *work*."""

    #: Whether batches write to the live tables.
    live = False

    def __init__(self, engine: Engine, plan: Plan, work: Work, clock: Clock) -> None:
        self.plan = plan
        self.clock = clock
        self._engine = engine
        self._work = work
        kind = PostgresqlSpace if engine.dialect.name == "postgresql" else SqliteSpace
        self.space: Space = kind(engine, plan, in_place=self.live)
        self._layouts: Sequence[Layout] = ()
        self._begun: Transaction
        self._entered = False

    def begin(self, *, verifies: bool = False) -> Progress:
        """Make the space, or take it up."""
        space, plan = self.space, self.plan
        with self._told():
            self._enter()
            space.exclusive(on=self.live)
            with self._nothing_left(), space.connection.begin():
                # Once aimed, the tables of the plan are the green ones.
                self._layouts = self._layouts or space.layouts()
                fingerprint = green_progress.fingerprint_of(plan, self._layouts)
                resumed = space.exists()
                if not resumed:
                    space.make()
                    now = self.clock.now()
                    green_progress.start(space.connection, fingerprint, now, verifies=verifies)
            space.aim()
            with space.connection.begin():
                found, progress = green_progress.progress_of(space.connection, resumed=resumed)
        if found != fingerprint and not (progress.verifies or progress.spoiled):
            raise RebuildError(green_saying.another(plan))
        return progress

    def clear(self, books: Iterable[Sequence[Head]], /, *, force: bool) -> None:
        """See that books have what the live lanes are past: the space begins empty."""
        if force:
            return
        self.space.exclusive(on=False)  # live runs need not wait for who only reads
        try:
            with self._transaction(moves=False) as connection:
                self.space.hold_still()
                unknown = green_lanes.events_in_no_book(connection, self.plan, books)
        finally:
            self.space.exclusive(on=self.live)
        if unknown:
            raise RebuildError(green_saying.unknown(self.plan, unknown))

    def apply(self, events: Sequence[Event], cursor: Head | None, /) -> Applied | Broken:
        """Handle *events*, but those before their places."""
        addresses = {head_of(event).address for event in events}
        try:
            with self._transaction():
                self.space.watch()
                known = self.where(addresses)
                amid = (self.space.connection, self._begun)
                applied = list(handled(events, known, self._work, self.plan, amid))
                moved = {head_of(event).address for event in applied}
                self._check_stray(self.space.strays() if self.plan.tables else "")
                self.note(applied, {one: known[one] for one in moved}, cursor)
                return Applied(len(applied))
        except RebuildUndone as undone:
            self._check_stray(self.space.denied())
            return undone.broken

    def spoil(self) -> None:
        """Note that it must not be gone on with."""
        with self._transaction(moves=False) as connection:
            green_progress.spoil(connection)

    def pass_by(self, event: Event, cursor: Head | None, failure: Failure | None, /) -> None:
        """Note where the scan is, and what became of *event*."""
        with self._transaction() as connection:
            if failure is None:
                address, following = head_after(event)
                self.note([event], {address: following}, cursor)
            else:
                green_progress.fail(connection, failure)
                self.stay(failure)
                self.note([], {}, cursor)

    def forgive(self) -> None:
        """Forget all failures."""
        with self._transaction() as connection:
            green_progress.forgive(connection)

    def places(self, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """The next sequences of *addresses*."""
        with self._transaction():
            return self.where(addresses)

    def switch_over(self, fill: Fill, /, *, force: bool) -> SwitchedOver | Busy:
        """Replace the live rows, lanes and checkpoint, and remove the space."""

        def step(connection: Connection) -> SwitchedOver:
            fill(ahead := green_lanes.lanes_ahead(connection, self.plan))
            _, done = green_progress.progress_of(connection, resumed=True)
            unknown = green_lanes.events_missing(connection, self.plan, ahead)
            if unknown and not force:
                raise RebuildError(green_saying.unknown(self.plan, unknown))
            self.space.writable(on=True)
            green_copying.copy(self.space, self._layouts)
            now = self.clock.now()
            green_lanes.set_lanes(connection, self.plan, now)
            green_lanes.set_checkpoint(connection, self.plan, now)
            self.space.remove()
            return SwitchedOver(done.events, done.failures)

        answer = self.alone(step)
        if isinstance(answer, SwitchedOver):
            self.space.removed()
        return answer

    def compare(self, fill: Fill, /) -> Compared | Ahead | Busy:
        """Compare by digests, while writers wait."""

        def step(connection: Connection) -> Compared | Ahead:
            fill(ahead := green_lanes.lanes_ahead(connection, self.plan))
            if pending := green_lanes.events_ahead(connection, self.plan):
                return Ahead(pending, green_lanes.blocked(connection, self.plan))
            compared = green_copying.compare_tables(self.space, self._layouts)
            return compared._replace(
                failures=tuple(green_progress.failures(connection)),
                unknown=green_lanes.events_missing(connection, self.plan, ahead),
            )

        return self.alone(step)

    def abandon(self) -> Abandoned | None:
        """Remove the space, unless another process has it in hand."""
        with self._told():
            self._enter()
            self.space.exclusive(on=True)
            with self.space.connection.begin() as begun:
                answer = self._abandon(begun.connection) if self.space.exists() else None
            self.space.removed()
        self.close()
        self._entered = False
        return answer

    def close(self) -> None:
        """Let the connection go."""
        self.space.close()

    # -- what is different for a rebuild in place --------------------------------------------

    def enter_batch(self) -> None:
        """Do what comes first in the transaction of a batch."""

    def where(self, addresses: Iterable[Address]) -> dict[Address, int]:
        """The next sequences of *addresses*, those that have one."""
        return places(self.space.connection, addresses, angzarr_rebuild_places)

    def stay(self, failure: Failure) -> None:
        """Write that an aggregate is at its failure, also where nothing of it came before."""
        put_places(self.space.connection, {failure.address: failure.sequence})

    def note(
        self, events: Sequence[Event], following: Mapping[Address, int], cursor: Head | None
    ) -> None:
        """Write in the transaction of a batch how far it came."""
        put_places(self.space.connection, following)
        green_progress.note(self.space.connection, events, cursor)

    # -- transactions ------------------------------------------------------------------------

    def _abandon(self, connection: Connection) -> Abandoned:
        """Remove the space; in lanes that a rebuild in place has moved, settle what waits."""
        whole = green_progress.emptied(connection) is None
        if not whole:
            shut(connection, self.plan.handler)
            green_lanes.settle_waiting(connection, self.plan)
        self.space.remove()
        return Abandoned(whole)

    def _enter(self) -> None:
        if not self._entered:
            self.space.enter()
            self._entered = True

    @contextmanager
    def _nothing_left(self) -> Iterator[None]:
        """Where nothing can be begun, leave nothing behind that was not there before."""
        try:
            yield
        except RebuildError:
            with self.space.connection.begin():
                there = self.space.exists()
            if not there:
                self.space.removed()
                self.close()
                self._entered = False
            raise

    def _check_stray(self, table: str) -> None:
        if table:
            raise RebuildError(green_saying.stray(self.plan, table))

    def _check_unchanged(self) -> None:
        """Check that the live tables, which are locked now, are those of the space."""
        for one in self._layouts:
            if self.space.layout(one.name).shape != one.shape:
                raise RebuildError(green_saying.changed(self.plan, one.name))

    def alone(self, step: Callable[[Connection], _Answer]) -> _Answer | Busy:
        """Run *step* in a transaction during which no other writes to the live tables."""
        space, answer = self.space, None
        space.exclusive(on=True)
        try:
            with self._told(), space.connection.begin():
                space.lock([one.name for one in self._layouts])
                self._check_unchanged()
                answer = step(space.connection)
        except IntegrityError as error:
            raise RebuildError(green_saying.unfit(self.plan, error)) from error
        except StoreUnavailable as away:
            if not is_busy(away.__cause__ or away):
                if isinstance(answer, SwitchedOver):
                    raise StoreUnavailable(green_saying.unheard(self.plan, away)) from away
                raise
            return Busy(str(away))
        else:
            return answer
        finally:
            space.exclusive(on=self.live)
            space.writable(on=not self.plan.tables)

    @contextmanager
    def _transaction(self, *, moves: bool = True) -> Iterator[Connection]:
        """Begin a transaction, which *moves* lanes or not, or a part of the one of `alone`."""
        connection = self.space.connection
        amid = connection.in_transaction()
        begin = connection.begin_nested if amid else connection.begin
        with self._told(), begin() as self._begun:
            if moves and not amid:
                self.enter_batch()
            yield connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        with unavailable_as(StoreUnavailable, self._engine):
            yield
