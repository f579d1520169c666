"""Runs of ordered handlers: work and the move of its lane in one transaction (ADR 0051).

On PostgreSQL the transaction of a run begins with the look at the lane and passes the gate of its
handler in the same statement. That saves each event a round trip.

Who replaces a read model shuts the gate: it waits for runs that are under way, and no run begins.
Runs do not wait to be let in: that would keep a slot of a worker from all other handlers. A run
that has only read so far holds no lock that a switch-over could wait for, and what it read would be
outdated when it writes. Who fills a read model in place pauses the gate for one short batch after
the other. There runs queue up, as they would hardly ever find it open, but no longer than the
database lets them wait for a lock. On SQLite a run keeps all other writers out anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Engine,
    RootTransaction,
    and_,
    bindparam,
    case,
    false,
    func,
    literal,
    select,
)
from sqlalchemy.exc import DBAPIError

from angzarr.adapters.sql.engine.engine import address, in_transaction, rolled_back, unavailable_as
from angzarr.adapters.sql.engine.error_hints import describe_error, is_busy, is_trouble, lacks_lock
from angzarr.adapters.sql.engine.statements import Single
from angzarr.adapters.sql.ordering.moves import here, named
from angzarr.adapters.sql.ordering.tables import ordering_lanes
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.ordering.lane import Elsewhere, Lane, Moved, Place, Step
from angzarr.ordering.lanes import Entered

#: The parameters of `LETS_IN`.
_GATE: Final = "g_gate"
_PAUSE: Final = "g_pause"

#: Lets who asks in until its transaction ends, and tells whether it did.
LETS_IN: Final[Any] = case(
    (
        func.pg_try_advisory_xact_lock_shared(bindparam(_GATE)),
        func.pg_advisory_xact_lock_shared(bindparam(_PAUSE)).is_not(None),
    ),
    else_=false(),
)


#: Whose address has `options` of its own waits for no lock for ever all the same: while it waits
#: no run is let in.
_BOUNDED: Final = select(func.set_config("lock_timeout", "4500ms", True)).where(  # noqa: FBT003 - of SQL
    func.current_setting("lock_timeout") == "0"
)


@lru_cache(maxsize=1024)
def keys_of(handler: str) -> dict[str, int]:
    """The parameters of `LETS_IN` for the runs of *handler*; do not change them."""
    return {_GATE: _key("run", handler), _PAUSE: _key("batch", handler)}


def shut(connection: Connection, handler: str) -> None:
    """Let no run of *handler* begin until the transaction ends; waits for those under way.

    None begins while it waits, so that it has its turn.
    """
    for key in keys_of(handler).values():
        _lock(connection, key)


def pause(connection: Connection, handler: str) -> None:
    """Let runs of *handler* wait until the transaction ends; waits for those under way.

    They have their turn before the next pause.
    """
    _lock(connection, keys_of(handler)[_PAUSE])


def _lock(connection: Connection, key: int) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_BOUNDED)
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def _key(what: str, handler: str) -> int:
    digest = hashlib.sha256(f"angzarr {what} {handler}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


#: in_failed_sql_transaction: a statement of the work had failed, and the work said nothing.
_FAILED: Final = "25P02"
#: Class 53, insufficient resources: a full disk is not a mistake of the work.
_NO_ROOM: Final = "53"
#: Of psycopg's TransactionStatus: ACTIVE, INERROR.
_ACTIVE: Final = 1
_IN_ERROR: Final = 3
#: Seconds that it may take to cancel a statement.
_PATIENCE: Final = 2.0


class _Left(Exception):
    """Undoes a transaction in which nothing ran."""


class _NotMoved(Exception):
    """Undoes a transaction whose lane was elsewhere."""

    def __init__(self, answer: Elsewhere) -> None:
        super().__init__()
        self.answer = answer


class BegunRun(NamedTuple):
    """A `transaction` that has begun: it ends with the block of *within*, which is empty then."""

    connection: Connection
    within: ExitStack


def begin(engine: Engine) -> BegunRun:
    """Begin a transaction; raises StoreUnavailable. Leave it, whatever happens."""
    within = ExitStack()
    return BegunRun(within.enter_context(transaction(engine)), within)


def leave(begun: BegunRun) -> None:
    """Undo what was *begun*; nothing, once it has ended."""
    with suppress(_Left), begun.within:
        raise _Left


def run(
    begun: BegunRun,
    work: Callable[[Connection], object],
    move: Callable[[Connection], Moved | Elsewhere],
) -> Moved | Elsewhere:
    """Run *work* and *move* in the transaction that was *begun*: it counts only if the lane moved.

    Raises what *work* raises, and StoreUnavailable where the database is away: if it was lost amid
    the COMMIT, the lane tells whether that was done when it is there again.
    """
    try:
        with begun.within:
            work(begun.connection)
            with ours(begun.connection):
                answer = move(begun.connection)
            return _kept(answer)
    except _NotMoved as undone:
        return undone.answer


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Give a Connection for a transaction that is committed, or undone by what is raised in it."""
    with unavailable_as(StoreUnavailable, engine):
        connection = engine.connect()
    with connection:
        with unavailable_as(StoreUnavailable, engine):
            begun = connection.begin()
        try:
            with _told(connection):
                yield connection
                _check(begun)
                _commit(connection, begun)
        except BaseException:
            _undo(connection, begun)
            raise


@contextmanager
def ours(connection: Connection) -> Iterator[None]:
    """Raise StoreUnavailable for whatever is wrong with statements of ours in a `transaction`."""
    try:
        with unavailable_as(StoreUnavailable, connection.engine):
            yield
    except StoreUnavailable as error:
        cause = error.__cause__
        if _state(cause) == _FAILED and cause is not None:
            raise cause from None
        raise


def _kept(answer: Moved | Elsewhere) -> Moved:
    if isinstance(answer, Elsewhere):
        raise _NotMoved(answer)
    return answer


def _commit(connection: Connection, begun: RootTransaction) -> None:
    """Commit. What PostgreSQL refuses now is what the work wrote; SQLite's disk may be full."""
    sqlite = connection.dialect.name == "sqlite"
    with unavailable_as(StoreUnavailable, connection.engine) if sqlite else nullcontext():
        begun.commit()


def _check(begun: RootTransaction) -> None:
    if not begun.is_active:
        msg = (
            "the work of an ordered handler ended the transaction that it was given: do not commit"
            " or roll back its connection, that is done when the lane has moved"
        )
        raise ConfigurationError(msg)


def _undo(connection: Connection, begun: RootTransaction) -> None:
    """Roll back, or let the connection go: a time limit may have come amid a statement."""
    try:
        if begun.is_active:
            begun.rollback()
            return
    except Exception:  # noqa: BLE001, S110 - what led here is told, and this connection goes
        pass
    _interrupt(connection)
    connection.invalidate()


def _interrupt(connection: Connection) -> None:
    """Have PostgreSQL end a statement that no client waits for any more, and with it its locks.

    It would not notice before the end of the statement that the connection is closed.
    """
    if not connection.invalidated and _status(connection) == _ACTIVE:
        raw: Any = connection.connection.dbapi_connection
        with suppress(Exception):
            raw.cancel_safe(timeout=_PATIENCE)


@contextmanager
def _told(connection: Connection) -> Iterator[None]:
    """Let what is raised through, unless it came of a database that is away.

    Other than in a statement of ours, a table that is missing is no outage here, but a mistake of
    the work, which would be tried for ever.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception as error:
        if not _is_away(connection, error):
            raise
        url = connection.engine.url
        cause = describe_error(getattr(error, "orig", error), url)
        msg = f"the database {address(url)} did not serve a transaction to its end: {cause}"
        raise StoreUnavailable(msg) from error


def _is_away(connection: Connection, error: Exception) -> bool:
    """True if the connection is lost, or its transaction failed by no fault of the work."""
    if connection.invalidated:
        return True
    if not isinstance(error, DBAPIError):
        return False
    if connection.dialect.name == "sqlite":  # a lock is that of another file: ours is held
        return is_trouble(error) and not is_busy(error)
    if not _has_failed(connection):
        return False
    return rolled_back(error) or _state(error).startswith(_NO_ROOM)


def _has_failed(connection: Connection) -> bool:
    """True if it is this transaction that failed: the work may use databases of its own."""
    return _status(connection) == _IN_ERROR


def _status(connection: Connection) -> object:
    """Psycopg's TransactionStatus of *connection*; None on SQLite."""
    info: Any = getattr(connection.connection.dbapi_connection, "info", None)
    return None if info is None else info.transaction_status


def _state(error: BaseException | None) -> str:
    """PostgreSQL's SQLSTATE of *error*, if it has one."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


_lanes = ordering_lanes.c


class LaneEntry:
    """The statement by which runs are let in, built once for an engine; *move* ends a run."""

    def __init__(
        self, engine: Engine, move: Callable[[Connection, Step], Moved | Elsewhere]
    ) -> None:
        self._engine = engine
        self._move = move
        #: Whether a transaction that has not written keeps no other waiting: SQLite has one writer.
        self.is_early = engine.dialect.name == "postgresql"
        one = select(literal(1)).subquery("one")
        lane = one.outerjoin(ordering_lanes, and_(*here()))
        asked = select(LETS_IN, _lanes.next_sequence, _lanes.waiting).select_from(lane)
        self._enter = Single(engine, asked)

    def enter(self, lane: Lane) -> Entered | None:
        """Begin a transaction, and look; None, with it ended, where the gate of *lane* is shut.

        What is seen may be older than the gate: a move tells. None, too, where a batch of a rebuild
        in place takes longer than a lock is waited for. Raises StoreUnavailable.
        """
        try:
            return self._entered(lane)
        except StoreUnavailable as away:
            cause = away.__cause__ or away
            if lacks_lock(cause):
                return None
            if not (isinstance(cause, DBAPIError) and cause.connection_invalidated):
                raise
        # The server was started anew, perhaps: all pooled connections go with the first, that way.
        in_transaction(self._engine, lambda connection: connection.execute(select(literal(1))))
        return self._entered(lane)

    def _entered(self, lane: Lane) -> Entered | None:
        begun = begin(self._engine)
        try:
            let_in, *found = self._asked(begun.connection, lane)
        except BaseException:
            with begun.within:  # it sees what ends it
                raise
        if not let_in:
            leave(begun)
            return None
        place = Place(lane.first) if found[0] is None else Place(*found)
        return _Entered(place, begun, self._move)

    def _asked(self, connection: Connection, lane: Lane) -> Sequence[Any]:
        values = named(lane) | keys_of(lane.handler)
        with unavailable_as(StoreUnavailable, self._engine):
            row = self._enter.first_in(connection, values)
        assert row is not None  # noqa: S101 - an outer join of one row
        return row


@dataclass(slots=True)
class _Entered(Entered):
    place: Place
    begun: BegunRun
    move: Callable[[Connection, Step], Moved | Elsewhere]

    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* with the Connection, and move past *step* in its transaction."""
        if self.place.next_sequence != step.sequence:
            self.close()
            return Elsewhere(self.place.next_sequence)
        return run(self.begun, work, lambda connection: self.move(connection, step))

    def close(self) -> None:
        """Roll back, unless it ran."""
        leave(self.begun)
