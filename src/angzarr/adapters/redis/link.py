"""The link to Redis: one reply per call, without redis-py's pool and its retries.

A pool checkout costs a select and several locks a call, and a retried script may run many times.
`Link` raises redis-py's errors; `RedisClient`, which stores use, says quickly that Redis is away.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from redis.connection import ConnectionPool
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from angzarr.errors import ConfigurationError, StoreUnavailable

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]
_Answer = TypeVar("_Answer")


class Connection(Protocol):
    """What is used of redis-py's connections, whose own signatures are not typed."""

    def connect(self) -> None:
        """Open the socket and authenticate."""

    def send_command(self, *args: Argument) -> None:
        """Connect if need be and send one command."""

    def send_packed_command(self, command: list[bytes]) -> None:
        """Connect if need be and send what was packed."""

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]:
        """The bytes of several commands."""

    def can_read(self, timeout: float = 0) -> bool:
        """True if there is something to read: a reply, or the end of the connection."""

    def read_response(
        self, *, disable_decoding: bool = False, disconnect_on_error: bool = True
    ) -> Any:
        """One reply; raises it if it is an error."""

    def disconnect(self) -> None:
        """Close the socket."""


class Script:
    """A Lua file of this package and its digest.

    One that *frees* memory also runs on a server that is full: consuming must go on there. It
    can call other files as functions (name → file), which take KEYS and ARGV.
    """

    def __init__(
        self, file: str, *, frees: bool = False, functions: Mapping[str, str] | None = None
    ) -> None:
        called = [
            f"local function {name}(KEYS, ARGV)\n{_read(called)}end\n"
            for name, called in (functions or {}).items()
        ]
        text = "".join((*called, _read(file)))
        self.text = f"#!lua flags=allow-oom\n{text}" if frees else text
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Link:
    """Connections to one Redis, made when first needed, one for each call under way.

    Safe to share between threads and greenlets and to carry over a fork. Raises redis-py's
    errors. A command whose idle connection turned out closed is sent once more, so what is sent
    must be idempotent; `execute_once` is for what is not.
    """

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._idle: deque[Connection] = deque()
        self._pid = os.getpid()

    def execute(self, *command: Argument) -> Any:
        """Send one command and return its reply; an error reply is raised."""
        return self._exchange(lambda connection: _execute(connection, command))

    def execute_once(self, *command: Argument) -> Any:
        """Send one command, never twice: if no reply comes, it may or may not have run."""
        connection = self._borrow()
        if connection is None or _is_stale(connection):
            connection = self._open()
        return self._with(connection, lambda connection: _execute(connection, command))

    def execute_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send *commands* at once and return their replies in order, the first error raised."""
        return self._exchange(lambda connection: _execute_many(connection, commands))

    def run(self, script: Script, keys: Sequence[Argument], *args: Argument) -> Any:
        """Run *script* in one round trip; Redis is taught the script if it must be."""
        rest = (len(keys), *keys, *args)
        try:
            return self.execute("EVALSHA", script.digest, *rest)
        except NoScriptError:
            return self.execute("EVAL", script.text, *rest)

    def run_many(self, script: Script, calls: Sequence[Command], keys: int = 1) -> list[Any]:
        """Run *script* once for each (*keys, *args) in one round trip, in order."""
        commands = [("EVALSHA", script.digest, keys, *call) for call in calls]
        try:
            return self.execute_many(commands)
        except NoScriptError:
            self.execute("SCRIPT", "LOAD", script.text)
            return self.execute_many(commands)

    def close(self) -> None:
        """Close the idle connections; the link can still be used and makes new ones."""
        while self._idle:
            self._idle.pop().disconnect()

    def _exchange(self, exchange: Callable[[Connection], _Answer]) -> _Answer:
        connection = self._borrow()
        if connection is not None:
            try:
                return self._with(connection, exchange)
            except RedisConnectionError:
                # The server was restarted or closed idle connections: the others are stale too.
                self.close()
        return self._with(self._open(), exchange)

    def _open(self) -> Connection:
        connection = self._make()
        connection.connect()  # behind Sentinel this alone asks where the master is
        return connection

    def _with(self, connection: Connection, exchange: Callable[[Connection], _Answer]) -> _Answer:
        """Use *connection*, which is kept unless the exchange broke off with replies under way."""
        try:
            answer = exchange(connection)
        except ReadOnlyError:
            # Once the master, now a replica: the name may stand for another server by now.
            connection.disconnect()
            self.close()
            raise
        except ResponseError:
            self._idle.append(connection)
            raise
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append(connection)
        return answer

    def _borrow(self) -> Connection | None:
        if self._pid != os.getpid():
            # Inherited over a fork: the parent talks through these. Dropping them closes our
            # descriptors only.
            self._idle, self._pid = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None


def _read(file: str) -> str:
    return (files(__package__) / file).read_text(encoding="utf-8")


def _is_stale(connection: Connection) -> bool:
    """True if the server closed an idle *connection*; it is closed here as well then."""
    try:
        stale = connection.can_read(0)
    except (RedisConnectionError, OSError):
        stale = True
    if stale:
        connection.disconnect()
    return stale


def _execute(connection: Connection, command: Command) -> Any:
    connection.send_command(*command)
    return connection.read_response()


def _execute_many(connection: Connection, commands: Sequence[Command]) -> list[Any]:
    """Read every reply before an error reply is raised: the connection must stay in step."""
    connection.send_packed_command(connection.pack_commands(commands))
    replies = [_reply(connection) for _ in commands]
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
    return replies


def _reply(connection: Connection) -> Any:
    try:
        return connection.read_response(disconnect_on_error=False)
    except ResponseError as error:
        return error


#: How long a connect or a reply may take: long for a healthy Redis, short for a held message.
DEFAULT_TIMEOUT = timedelta(seconds=2)

#: What a server answers that is there but cannot serve; it may again in a moment.
_NOT_NOW = (
    RedisConnectionError,
    RedisTimeoutError,
    AuthenticationError,
    NoPermissionError,
    ReadOnlyError,
    OutOfMemoryError,
    ClusterDownError,
    TryAgainError,
)

#: The same, where redis-py has no class: these codes, or any code that Redis 6 wraps when it
#: comes out of a script.
_NOT_NOW_CODE = re.compile(
    r"(BUSY|MISCONF|NOREPLICAS|UNKILLABLE) "
    r"|Error running script .*@user_script: ?\d+: -(READONLY|OOM|MISCONF|NOREPLICAS) "
)


class RedisClient:
    """A `Link` whose errors are ours.

    *timeout* bounds a connect and each reply; a call takes at most twice that. Replies are text.
    """

    def __init__(self, url: str, *, timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self._make, self.address = _connector(url, timeout.total_seconds())
        self._link = Link(self._make)

    def execute(self, *command: Argument) -> Any:
        """Send one command and return its reply; an error reply is raised."""
        return self._call(self._link.execute, *command)

    def execute_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send *commands* at once and return their replies in order, the first error raised."""
        replies: list[Any] = self._call(self._link.execute_many, commands)
        return replies

    def run(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Run *script* on *keys* of one server in one round trip; Redis is taught it if need be."""
        return self._call(self._link.run, script, keys, *args)

    def run_many(self, script: Script, calls: Sequence[Command], keys: int = 1) -> list[Any]:
        """Run *script* once for each (*keys, *args) in one round trip, in order."""
        replies: list[Any] = self._call(self._link.run_many, script, calls, keys)
        return replies

    def time(self) -> datetime:
        """The server's time; raises StoreUnavailable."""
        seconds, micros = self.execute("TIME")
        return datetime.fromtimestamp(int(seconds), UTC) + timedelta(microseconds=int(micros))

    def connect(self) -> Connection:
        """A connection of the caller's own, whose errors are redis-py's."""
        connection = self._make()
        connection.connect()
        return connection

    def close(self) -> None:
        """Close the idle connections; the client can still be used and makes new ones."""
        self._link.close()

    def _call(self, send: Callable[..., Any], *what: Any) -> Any:
        try:
            return send(*what)
        except AskError as error:
            msg = f"Redis at {self.address} is a node of a cluster and this key is on another one"
            raise ConfigurationError(msg) from error
        except RedisError as error:
            if not is_not_now(error):
                raise
            msg = f"Redis at {self.address} did not serve a command: {error}{_cure(error)}"
            raise StoreUnavailable(msg) from error


def _cure(error: RedisError) -> str:
    """What a person may do about *error*, where it says that no connection came about."""
    if isinstance(error, NoPermissionError):
        return " (give its user the right, with ACL SETUSER, or name another user)"
    if isinstance(error, AuthenticationError):
        return " (check user and password of its address)"
    if isinstance(error, RedisConnectionError):
        return " (check host and port of its address, and that it runs)"
    return ""


def whole_ms(span: timedelta) -> int:
    """*span* in whole milliseconds, at least one: Redis refuses a lease of nothing."""
    return max(round(span.total_seconds() * 1000), 1)


def is_not_now(error: RedisError) -> bool:
    """True if a server that says *error* may serve again in a moment."""
    return isinstance(error, _NOT_NOW) or _NOT_NOW_CODE.match(str(error)) is not None


def _connector(url: str, timeout: float) -> tuple[Callable[[], Connection], str]:
    """What makes a connection, and the address without the password."""
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            decode_responses=True,
            protocol=2,
        )
    except (ValueError, TypeError) as error:
        msg = "the address of Redis is not of the form redis://[user:password@]host[:port][/db]"
        raise ConfigurationError(msg) from error
    settings = pool.connection_kwargs
    place = f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
    address = f"{settings.get('path', place)}/{settings.get('db', 0)}"

    def make() -> Connection:
        return cast("Connection", pool.connection_class(**settings))

    return make, address
