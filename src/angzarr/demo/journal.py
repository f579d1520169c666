"""Journal: what the demo's handlers and its publisher themselves say happened, line by line.

It is evidence that does not come from the framework: a line is written in the handler's own call,
just before and just after it. One SQLite file, shared by all processes of one host.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from angzarr.adapters.sql.engine.sqlite_files import make_private
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import WORDS, Delivery, Outcome
from angzarr.errors import Postpone, RetryLater, Skip

PUBLISHED: Final = "published"
BEGAN: Final = "began"
FINISHED: Final = "finished"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
ASKED: Final = "asked to be run later"
#: Written by a hook, after the framework settled a delivery; only the live table believes it.
SETTLED: Final = "settled"

_SCHEMA = """
pragma journal_mode = wal;
pragma synchronous = off;
create table lines (number integer primary key, what text, handler text, event_id text,
                    detail text, replay int);
"""


class Pair(NamedTuple):
    """An event and one of its handlers: the unit of accounting (decisions 31)."""

    handler: str
    event_id: str


class Line(NamedTuple):
    """One line of the journal."""

    number: int
    what: str
    pair: Pair
    detail: str
    replay: int


class Journal:
    """Appends lines and reads them; safe in any thread, and after a fork."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._opened: tuple[int, sqlite3.Connection] | None = None

    def create(self) -> None:
        """Make the file; once, before anybody else opens it."""
        with self._lock:
            self._connection().executescript(_SCHEMA)

    def write(self, what: str, pair: Pair, detail: str = "", replay: int = 0) -> None:
        """Append one line; it outlives this process."""
        with self._lock:
            self._connection().execute(
                "insert into lines (what, handler, event_id, detail, replay)"
                " values (?, ?, ?, ?, ?)",
                (what, *pair, detail, replay),
            )

    def read(self, after: int = 0) -> list[Line]:
        """Return the lines behind number *after*, in the order in which they were written."""
        with self._lock:
            rows = self._connection().execute(
                "select * from lines where number > ? order by number", (after,)
            )
            return [
                Line(number, what, Pair(handler, event_id), detail, replay)
                for number, what, handler, event_id, detail, replay in rows
            ]

    def close(self) -> None:
        """Close this process's connection."""
        with self._lock:
            if self._opened is not None and self._opened[0] == os.getpid():
                self._opened[1].close()
            self._opened = None

    @contextmanager
    def run_of(self, context: Context) -> Iterator[None]:
        """Write down that a handler began, and how its call ended."""
        pair = Pair(context.delivery.handler, context.event.id)
        self.write(BEGAN, pair, str(context.attempt), context.replay)
        try:
            yield
        except Skip as said:
            self.write(SKIPPED, pair, str(said), context.replay)
            raise
        except (Postpone, RetryLater) as said:
            self.write(ASKED, pair, str(said), context.replay)
            raise
        except BaseException as error:
            self.write(FAILED, pair, type(error).__name__, context.replay)
            raise
        self.write(FINISHED, pair, replay=context.replay)

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None or self._opened[0] != os.getpid():
            make_private(str(self._file))
            opened = sqlite3.connect(
                self._file, timeout=30, isolation_level=None, check_same_thread=False
            )
            opened.execute("pragma synchronous = off")  # it must outlive a process, not a power cut
            self._opened = (os.getpid(), opened)
        return self._opened[1]


class JournalHook:
    """Writes each settled delivery down, for the live table."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def attempt(self, _delivery: Delivery, /) -> AbstractContextManager[object]:
        """See nothing: the handlers are watched more closely."""
        return nullcontext()

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """Write the outcome's word."""
        pair = Pair(delivery.handler, delivery.event.id)
        self._journal.write(SETTLED, pair, WORDS[type(outcome)], delivery.position.replay)
