"""SQLite files: never open across a fork, and readable by their owner only.

A child that inherits an open SQLite file also inherits the belief that it holds its locks. Even
a new connection there can lose commits (sqlite.org/howtocorrupt.html, section 2.6). So a fork
waits until connections are given back, closes them, and only then happens.

The files hold payloads and stack traces. SQLite gives a write-ahead log, its index and a journal
the permissions of their database.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from sqlalchemy import Engine, Pool, QueuePool, event
from sqlalchemy.pool import PoolProxiedConnection

#: How long a fork waits for transactions and first connections under way. A fork from inside one
#: has to go on.
_PATIENCE = timedelta(seconds=2)

#: Pools that a child inherited all the same. Closing a connection there would end the parent's
#: session (PostgreSQL) or release its locks (SQLite): they are kept, unused, until the end.
_INHERITED: list[Pool] = []

_SURVIVORS: weakref.WeakSet[Engine] = weakref.WeakSet()


class _Gate:
    """Counts threads that are taking a connection, and lets none begin while the process forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entering = 0
        self._forking = 0

    def enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._entering += 1

    def leave(self) -> None:
        with self._changed:
            self._entering -= 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: not self._entering, _PATIENCE.total_seconds())

    def open(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()


class GatedPool(QueuePool):
    """A pool that hands out nothing while the process forks."""

    gate: ClassVar[_Gate] = _Gate()

    def connect(self) -> PoolProxiedConnection:
        """Hand out a connection; waits while a fork is under way."""
        gate = self.gate
        gate.enter()
        try:
            return super().connect()
        finally:
            gate.leave()


class LearningPool(QueuePool):
    """A pool whose first connection no fork interrupts.

    SQLAlchemy learns then, once for an engine, what server it has; a child that is forked amid that
    would never learn it, and could use no connection.
    """

    _learned = False

    def connect(self) -> PoolProxiedConnection:
        """Hand out a connection; the first one waits while a fork is under way."""
        if self._learned:
            return super().connect()
        gate = GatedPool.gate
        gate.enter()
        try:
            connected = super().connect()
            self._learned = True
        finally:
            gate.leave()
        return connected


def survive_forks(engine: Engine) -> None:
    """Make *engine* usable on both sides of every fork of this process.

    With a `GatedPool` it has no connection open while the fork happens; any other pool's are left
    to the parent.
    """
    _SURVIVORS.add(engine)


def _before() -> None:
    GatedPool.gate.close()
    for engine in list(_SURVIVORS):
        pool = engine.pool
        if isinstance(pool, GatedPool) and _all_given_back(pool):
            pool.dispose()  # the same pool goes on: threads that wait at the gate are in it


def _after_in_parent() -> None:
    GatedPool.gate.open()


def _after_in_child() -> None:
    GatedPool.gate = _Gate()  # the old one's lock may be held by a thread that is not here
    for engine in list(_SURVIVORS):
        pool = engine.pool
        if isinstance(pool, GatedPool) and not pool.checkedout():
            continue
        _INHERITED.append(pool)
        engine.dispose(close=False)


def _all_given_back(pool: QueuePool) -> bool:
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    while pool.checkedout() and time.monotonic() < deadline:
        time.sleep(0.001)
    return not pool.checkedout()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)

_OWNERS_ALONE: Final = 0o600
_NO_FILE: Final = frozenset({"", ":memory:"})


def keep_private(engine: Engine) -> None:
    """Let *engine* make a missing SQLite file for its owner alone, whatever the umask.

    A file that exists keeps its permissions.
    """

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: Any, _options: Any) -> None:
        make_private(str(args[0]) if args else "")


def make_private(database: str) -> None:
    """Make the file of *database*, a path or a `file:` URI of SQLite, unless it is there.

    What keeps it from being made is SQLite's to say.
    """
    path = _path_of(database)
    if path in _NO_FILE:
        return
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNERS_ALONE))


def _path_of(database: str) -> str:
    if not database.startswith("file:"):
        return database
    parts = urlsplit(database)
    makes_none = any(word in parts.query for word in ("mode=ro", "mode=rw&", "mode=memory"))
    is_left = makes_none or parts.query.endswith("mode=rw")
    return "" if is_left else unquote(parts.path)
