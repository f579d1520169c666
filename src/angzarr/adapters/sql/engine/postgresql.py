"""Connections to PostgreSQL: bounded waits, and the primary only.

libpq bounds connects and, by TCP, peers that are gone; the server bounds statements. A frozen
server does neither, so `bound_answers` limits the wait for each answer on our side.

After a failover an address may lead to the old primary for a while, which is a standby by then. It
takes connections, answers, and refuses each write, for as long as the pool lends its connection.
So `keep_only_the_primary` drops such connections.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, ExceptionContext, event, text

#: Asks libpq for a server that takes writes, of the one or the several that an address names.
WANTED: Final = {"target_session_attrs": "read-write"}
#: SQLSTATEs by which a server says that it is not the one: read_only_sql_transaction.
_READ_ONLY: Final = "25006"
#: And that it is not the one now, or not yet: admin_shutdown, crash_shutdown and
#: cannot_connect_now; class 08 is the connection itself. A pooler may pass them on and stay.
_NOT_NOW: Final = ("57P01", "57P02", "57P03", "08")


def keep_only_the_primary(engine: Engine) -> None:
    """Let *engine* drop its connections once one of them leads to a server that is not the one.

    All of its pool, which leads to the same place. The error counts as a disconnect:
    `connection_invalidated` is true of it.
    """

    @event.listens_for(engine, "handle_error")
    def judge(context: ExceptionContext) -> None:
        state = _state(context.original_exception)
        if state == _READ_ONLY or state.startswith(_NOT_NOW):
            context.is_disconnect = True


def hint_of(error: object, url: URL) -> str:
    """The hint beside *error*, a driver's; empty where it says enough itself."""
    # A refused connect has no SQLSTATE: libpq asked, and says so in words of its own.
    if _state(error) != _READ_ONLY and "session is read-only" not in str(error):
        return ""
    asked = url.query.get("target_session_attrs", WANTED["target_session_attrs"])
    return (
        f" (it takes no writes now: it is a standby, or set read-only; connections are made anew,"
        f" with target_session_attrs={asked}, until the address leads to the primary)"
    )


def _state(error: object) -> str:
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


_Answer = TypeVar("_Answer")

#: Seconds beyond what a statement may take: the server's own limit is to speak first.
GRACE: Final = 1.0


def bound_answers(engine: Engine, seconds: float) -> None:
    """Let every connection of *engine* fail that has no answer *seconds* and GRACE after it asked.

    The connection is closed: what comes late answers no question.
    """
    import psycopg  # noqa: PLC0415 - an extra

    class BoundedConnection(psycopg.Connection[Any]):
        """Closes itself when an answer is overdue; what was asked may have been done."""

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            try:
                wanted = next(gen)
            except StopIteration as end:  # there is nothing to wait for
                return end.value
            bounded = _bounded(gen, wanted, seconds + GRACE, self._overdue)
            with _closed_quietly(gen):
                return super().wait(bounded, *args, **options)

        def _overdue(self) -> Exception:
            self.pgconn.finish()
            return psycopg.OperationalError(f"no answer within {seconds + GRACE:g} s")

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: Any, options: Any) -> Any:
        return BoundedConnection.connect(*args, **options)


@contextmanager
def _closed_quietly(steps: Generator[Any, Any, Any]) -> Iterator[None]:
    """Close *steps* where the wait for them fails: a pipeline that is cut off asks once more.

    Left to be collected it would complain of that into the log, at length.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):
            steps.close()
        raise


def _bounded(
    steps: Generator[Any, Any, _Answer], wanted: Any, seconds: float, overdue: Any
) -> Generator[Any, Any, _Answer]:
    """Go on with *steps* of a request; raise what *overdue* returns once they take too long.

    Each step yields what it waits for, the first one *wanted*; it is sent nothing whenever a while
    has passed in vain.
    """
    until = time.monotonic() + seconds
    try:
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise overdue()
            wanted = steps.send(ready)
    except StopIteration as end:
        answer: _Answer = end.value
        return answer


#: How an address sets the longest statement, as libpq and the server take it.
_NAMED: Final = re.compile(
    r"(?:-c\s*|--)statement[_-]timeout\s*=\s*(?P<value>.*?)(?=\s-|$)", re.IGNORECASE
)
_SPAN: Final = re.compile(r"['\"]?(?P<count>\d+)\s*(?P<unit>[a-z]*)['\"]?", re.IGNORECASE)
#: Seconds in a unit of PostgreSQL's; without one it is milliseconds.
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}


def connect_options(url: URL, seconds: float, *, patient: bool = False) -> dict[str, Any]:
    """Bound connects, statements and dead peers, and ask for the primary and for text.

    *patient*: a statement may take as long as it likes. What the address itself says wins (libpq).
    Its ``options`` come behind ours: one that sets a search path still has our limits, and one that
    sets a limit has its own.
    """
    limit_ms = max(round(seconds * 1000), 1)
    longest_ms = 0 if patient else limit_ms
    options = {
        **WANTED,
        "connect_timeout": max(round(seconds), 2),  # libpq's least
        "tcp_user_timeout": limit_ms,
        # Who waits for an answer sends nothing, so no write finds out that the host is gone; Linux
        # would ask after two hours. The kernel answers for a server that only thinks for long.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        # Of a database that says SQL_ASCII the driver would hand out bytes in place of text.
        "client_encoding": "utf8",
    }
    # A wait for a lock ends first, and is said to be one.
    limits = f"-c statement_timeout={longest_ms} -c lock_timeout={limit_ms * 9 // 10 or 1}"
    return {
        **{name: value for name, value in options.items() if name not in url.query},
        "options": " ".join([limits, *_said(url)]),
    }


def longest_answer(url: URL, seconds: float) -> float | None:
    """The seconds that an answer may take: *seconds*, or more where the address says so.

    None where it says that there is no end, or in a way that this does not understand.
    """
    found = list(_NAMED.finditer(" ".join(_said(url))))
    if not found:
        return seconds
    span = _SPAN.fullmatch(found[-1]["value"].strip())
    unit = _SECONDS.get(span["unit"].lower()) if span else None
    if span is None or unit is None or int(span["count"]) == 0:
        return None
    return max(int(span["count"]) * unit, seconds)


def _said(url: URL) -> list[str]:
    said = url.query.get("options", ())
    return [said] if isinstance(said, str) else list(said)


def compress_by_lz4(connection: Connection, table: str, column: str) -> None:
    """Let the values that come into *column* be compressed by LZ4, where the server's build can.

    Its own way takes some 30 us for 3 KB, LZ4 a fifth of that. Other databases compress nothing.
    """
    if connection.dialect.name != "postgresql":
        return
    ways = "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"
    if "lz4" in (connection.scalar(text(ways)) or ()):  # none before PostgreSQL 14
        connection.execute(text(f"ALTER TABLE {table} ALTER COLUMN {column} SET COMPRESSION lz4"))
