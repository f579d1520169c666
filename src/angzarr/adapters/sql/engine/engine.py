"""SQLAlchemy engines for SQLite and PostgreSQL: short waits, safe forks, errors with their cause.

SQLite serves one host: a file in WAL mode whose writers queue up. On PostgreSQL the database
measures the spans and leases of claims. On SQLite worker and database share the machine's clock.
The ledger goes by the time of the worker, which long-lived processes take from the claim store.

`ENGINES` lends one engine for each database, so that a process has one pool there.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    MetaData,
    NullPool,
    create_engine,
    event,
    func,
    make_url,
    select,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from angzarr.adapters.sql.engine.error_hints import describe_error
from angzarr.adapters.sql.engine.postgresql import (
    bound_answers,
    connect_options,
    keep_only_the_primary,
    longest_answer,
)
from angzarr.adapters.sql.engine.sqlite_files import (
    GatedPool,
    LearningPool,
    keep_private,
    survive_forks,
)
from angzarr.errors import ConfigurationError, StoreUnavailable, Unavailable

_Answer = TypeVar("_Answer")

#: How an address looks, for people.
_FORMS: Final = "sqlite:///file or postgresql+psycopg://host/name"

#: How long a connect, a statement or a wait for a lock or a pooled connection may take.
DEFAULT_TIMEOUT = timedelta(seconds=5)

#: Name of the lock under which processes that start together create tables, in PostgreSQL's
#: space of advisory locks ("angzarr" in ASCII).
CREATE_LOCK = int.from_bytes(b"angzarr", "big")


def build_engine(
    url: str, *, timeout: timedelta = DEFAULT_TIMEOUT, pool_size: int = 5, power_safe: bool = True
) -> Engine:
    """An engine for ``sqlite:///file`` or ``postgresql+psycopg://…``; it connects lazily.

    *power_safe* False lets SQLite keep its last commits in the page cache: they outlive the
    process but perhaps not a power cut, which is enough for claims (work is repeated, not lost).
    """
    parsed = parsed_url(url)
    seconds = timeout.total_seconds()
    sqlite = parsed.get_backend_name() == "sqlite"
    engine = create_engine(
        parsed,
        pool_size=pool_size,
        max_overflow=2 * pool_size,
        pool_timeout=seconds,
        poolclass=GatedPool if sqlite else LearningPool,
        connect_args={"timeout": seconds} if sqlite else connect_options(parsed, seconds),
    )
    if sqlite:
        _prepare_sqlite(engine, seconds, power_safe=power_safe)
    else:
        keep_only_the_primary(engine)
        _speak_utc(engine)
        if (longest := longest_answer(parsed, seconds)) is not None:
            bound_answers(engine, longest)
    survive_forks(engine)
    return engine


@contextmanager
def patient(engine: Engine) -> Iterator[Engine]:
    """Lend an engine to the same database for work that may take long; a wait for a lock may not.

    What the address itself says about limits still holds.
    """
    if engine.dialect.name == "sqlite":
        yield engine  # only waits for locks are bounded there
        return
    seconds = DEFAULT_TIMEOUT.total_seconds()
    options = connect_options(engine.url, seconds, patient=True)
    slow = create_engine(engine.url, poolclass=NullPool, connect_args=options)
    keep_only_the_primary(slow)
    _speak_utc(slow)
    try:
        yield slow
    finally:
        slow.dispose()


def reading(engine: Engine) -> Engine:
    """*engine* for transactions that only read: on SQLite they wait for no writer."""
    return engine.execution_options(sqlite_begin="BEGIN")


#: Names of UTC among those of a server.
_UTC: Final = frozenset({"UTC", "Etc/UTC"})
#: deadlock_detected, serialization_failure.
_ROLLED_BACK: Final = frozenset({"40P01", "40001"})


def create_missing(engine: Engine, metadata: MetaData) -> None:
    """Create what is missing of *metadata*; safe while other processes do the same."""

    def create(connection: Connection) -> None:
        if engine.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(CREATE_LOCK)))
        metadata.create_all(connection)

    in_transaction(engine, create)


def in_transaction(
    engine: Engine,
    step: Callable[[Connection], _Answer],
    *,
    away: type[Unavailable] = StoreUnavailable,
    once: bool = False,
) -> _Answer:
    """Run *step* in one transaction of its own; raise *away* if the database does not serve it.

    *step* must be idempotent: it runs once more if its pooled connection turned out closed, or to
    lead to a server that takes no writes, and where it waited for another one that waited for it.
    With *once* its answer would be another the second time: if it is not known whether it was
    committed, that is what *away* says.
    """
    run = _Run(engine, step)
    with unavailable_as(away, engine):
        try:
            return run()
        except DBAPIError as error:
            if not (error.connection_invalidated or rolled_back(error)):
                raise
            if once and run.committing and error.connection_invalidated:
                msg = (
                    f"the database {address(engine.url)} was lost while it was told to commit:"
                    " look whether it was done, and do it again if not"
                )
                raise away(msg) from error
        return run()


class _Run(Generic[_Answer]):
    """A step in a transaction of its own, each time that it is called."""

    def __init__(self, engine: Engine, step: Callable[[Connection], _Answer]) -> None:
        self._engine = engine
        self._step = step
        #: Whether the step came to its end, and nothing but the COMMIT is left.
        self.committing = False

    def __call__(self) -> _Answer:
        self.committing = False
        with self._engine.begin() as connection:
            answer = self._step(connection)
            self.committing = True
        return answer


def rolled_back(error: DBAPIError) -> bool:
    """True if PostgreSQL undid a transaction so that others could go on: a deadlock."""
    return getattr(error.orig, "sqlstate", None) in _ROLLED_BACK


@contextmanager
def unavailable_as(away: type[Unavailable], engine: Engine) -> Iterator[None]:
    """Raise *away* for errors that say that the database of *engine* does not serve."""
    try:
        yield
    except (DBAPIError, PoolTimeoutError) as error:
        if not _is_away(error):
            raise
        cause = describe_error(getattr(error, "orig", error), engine.url)
        msg = f"the database {address(engine.url)} did not serve a transaction: {cause}"
        raise away(msg) from error


def address(url: URL) -> str:
    """*url* without its secrets: libpq takes a password in the query, too."""
    return url.set(query={}).render_as_string(hide_password=True)


def _is_away(error: SQLAlchemyError) -> bool:
    """True if the database does not serve, rather than refuse what it was given.

    A table or a right that is missing, a full disk and a damaged file are fixed by people, and
    meanwhile nothing may be lost; only data and what they break are the caller's own fault.
    """
    if isinstance(error, DataError | IntegrityError) or _exceeds(error):
        return bool(getattr(error, "connection_invalidated", False))
    return True


def _exceeds(error: SQLAlchemyError) -> bool:
    """True if PostgreSQL has no room for it at all (SQLSTATE 54…): a key that is too long."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(state, str) and state.startswith("54")


def parsed_url(url: str) -> URL:
    """*url* with the driver that is used; raises ConfigurationError for any other's."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        msg = f"the database address is not of the form {_FORMS}"
        raise ConfigurationError(msg) from error
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        msg = f"databases are {_FORMS}, not {backend}://"
        raise ConfigurationError(msg)
    if parsed.database in {None, "", ":memory:"}:
        msg = "an in-memory SQLite database is private to one connection: name a file"
        raise ConfigurationError(msg)
    return parsed


def _speak_utc(engine: Engine) -> None:
    """Let the server tell times in UTC, whatever its zone, the role's or `PGTZ` is.

    West of Greenwich the zero time of Go and .NET would be one before the year 1, which the driver
    refuses, with all rows of its page. A server that tells UTC, as most do, is asked nothing.
    """

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        if connection.info.parameter_status("TimeZone") not in _UTC:
            connection.execute("SET TIME ZONE 'UTC'")
            connection.commit()  # a rollback would undo it


def _prepare_sqlite(engine: Engine, seconds: float, *, power_safe: bool) -> None:
    synchronous = "FULL" if power_safe else "NORMAL"
    keep_private(engine)

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin in `begin`, not behind our back
        _switch_to_wal(connection, time.monotonic() + seconds)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes then fails at once where another one wrote.
        how = connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE")
        connection.exec_driver_sql(how)


def _switch_to_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch the file to WAL; SQLite does not wait for a lock here, so we do."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


class BorrowedEngine:
    """An engine that others use too. To be closed by its borrower; safe to close twice."""

    def __init__(self, engine: Engine, give_back: Callable[[], None]) -> None:
        self.engine = engine
        self._give_back: Callable[[], None] | None = give_back

    def close(self) -> None:
        """Give it back; the last who does so closes the pooled connections."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class SharedEngines:
    """Lends one engine for each address. Safe to use from threads.

    A child goes on with the engines that it inherited, with connections of its own
    (`survive_forks`).
    """

    def __init__(self) -> None:
        self._engines: dict[URL, Engine] = {}
        self._users: dict[URL, int] = {}
        self._lock = threading.Lock()
        # Another thread may hold the lock while this one forks, and it would never be let go.
        os.register_at_fork(after_in_child=self._renew_lock)

    def borrow(self, url: str) -> BorrowedEngine:
        """Lend the engine for *url*, made now if it is not lent yet; raises ConfigurationError."""
        place = _place(url)
        with self._lock:
            if place not in self._engines:
                self._engines[place] = build_engine(url)
            self._users[place] = self._users.get(place, 0) + 1
            return BorrowedEngine(self._engines[place], lambda: self._return(place))

    def _return(self, place: URL) -> None:
        with self._lock:
            self._users[place] -= 1
            if self._users[place]:
                return
            del self._users[place]
            engine = self._engines.pop(place)
        engine.dispose()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


#: Those of this process.
ENGINES: Final = SharedEngines()


def _place(url: str) -> URL:
    """The place to which *url* leads, with an absolute path: folders of processes differ."""
    parsed = parsed_url(url)
    if parsed.get_backend_name() != "sqlite":
        return parsed
    return parsed.set(database=str(Path(parsed.database or "").absolute()))
