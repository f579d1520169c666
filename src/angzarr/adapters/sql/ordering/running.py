"""Work and the move of its lane in one transaction, which is never left open (ADR 0051)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from angzarr.adapters.sql.engine.engine import address, rolled_back, told_as
from angzarr.adapters.sql.engine.error_kind import is_busy, is_trouble
from angzarr.adapters.sql.engine.remedy import told
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.ordering.lane import Elsewhere, Moved

#: in_failed_sql_transaction: a statement of the work had failed, and the work said nothing.
_FAILED: Final = "25P02"
#: Class 53, insufficient resources: a full disk is nobody's mistake.
_NO_ROOM: Final = "53"
#: Of psycopg's TransactionStatus: ACTIVE, INERROR.
_ACTIVE: Final = 1
_IN_ERROR: Final = 3
#: Seconds that the word may take that nobody waits for a statement.
_PATIENCE: Final = 2.0


class _Left(Exception):
    """Undoes a transaction in which nothing ran."""


class _NotMoved(Exception):
    """Undoes a transaction whose lane was elsewhere."""

    def __init__(self, answer: Elsewhere) -> None:
        super().__init__()
        self.answer = answer


class Begun(NamedTuple):
    """A `transaction` that has begun: it ends with the block of *within*, which is empty then."""

    connection: Connection
    within: ExitStack


def begin(engine: Engine) -> Begun:
    """Begin a transaction; raises StoreUnavailable. Leave it, whatever happens."""
    within = ExitStack()
    return Begun(within.enter_context(transaction(engine)), within)


def leave(begun: Begun) -> None:
    """Undo what was *begun*; nothing, once it has ended."""
    with suppress(_Left), begun.within:
        raise _Left


def run(
    begun: Begun,
    work: Callable[[Connection], object],
    move: Callable[[Connection], Moved | Elsewhere],
) -> Moved | Elsewhere:
    """Run *work* and *move* in the transaction that was *begun*: it counts only if the lane moved.

    Raises what *work* raises, and StoreUnavailable where the database is away: if it was lost amid
    the COMMIT nobody can tell whether that was done, but the lane can when it is there again.
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
    with told_as(StoreUnavailable, engine):
        connection = engine.connect()
    with connection:
        with told_as(StoreUnavailable, engine):
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
        with told_as(StoreUnavailable, connection.engine):
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
    with told_as(StoreUnavailable, connection.engine) if sqlite else nullcontext():
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
    """Have PostgreSQL end a statement that nobody waits for any more, and with it its locks.

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
        cause = told(getattr(error, "orig", error), url)
        msg = f"the database {address(url)} did not serve a transaction to its end: {cause}"
        raise StoreUnavailable(msg) from error


def _is_away(connection: Connection, error: Exception) -> bool:
    """Tell whether the connection is lost, or its transaction failed by no fault of the work."""
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
    """Tell whether it is this transaction that failed: the work may use databases of its own."""
    return _status(connection) == _IN_ERROR


def _status(connection: Connection) -> object:
    """Return psycopg's TransactionStatus of *connection*; None on SQLite."""
    info: Any = getattr(connection.connection.dbapi_connection, "info", None)
    return None if info is None else info.transaction_status


def _state(error: BaseException | None) -> str:
    """Return PostgreSQL's SQLSTATE of *error*, if it has one."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
