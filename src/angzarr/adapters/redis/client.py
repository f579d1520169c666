"""The connection to Redis: one reply per call, quickly or as StoreUnavailable.

redis-py's connections are used without its pool and its retries: a pool checkout costs a select
and several locks a call, and a retried script may run many times. What is sent here must be
idempotent, because a command whose idle connection turned out closed is sent once more.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
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


class Connection(Protocol):
    """What is used of redis-py's connections, whose own signatures are not typed."""

    def send_command(self, *args: Argument) -> None:
        """Connect if need be and send one command."""

    def send_packed_command(self, command: list[bytes]) -> None:
        """Connect if need be and send what was packed."""

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]:
        """Return the bytes of several commands."""

    def read_response(self, *, disconnect_on_error: bool = True) -> Any:
        """Return one reply, or raise it if it is an error."""

    def disconnect(self) -> None:
        """Close the socket."""


class Script:
    """A Lua file of this package and its digest."""

    def __init__(self, file: str) -> None:
        self.text = (files(__package__) / file).read_text(encoding="utf-8")
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Connections to one Redis, made when first needed, one for each call under way.

    Safe to share between threads and greenlets and to carry over a fork. Replies are text.
    *timeout* bounds a connect and each reply; a call takes at most twice that.
    """

    def __init__(self, url: str, *, timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self._make, self.address = _connector(url, timeout.total_seconds())
        self._idle: deque[Connection] = deque()
        self._pid = os.getpid()

    def execute(self, *command: Argument) -> Any:
        """Send one command and return its reply; an error reply is raised."""
        return self._call(lambda connection: _execute(connection, command))

    def execute_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send *commands* at once and return their replies in order, the first error raised."""
        return self._call(lambda connection: _execute_many(connection, commands))

    def run(self, script: Script, key: str, *args: Argument) -> Any:
        """Run *script* on one key in one round trip; Redis is taught the script if it must be."""
        command = ("EVALSHA", script.digest, 1, key, *args)
        try:
            return self._call(lambda connection: _execute(connection, command))
        except NoScriptError:
            return self.execute("EVAL", script.text, 1, key, *args)

    def run_many(self, script: Script, calls: Sequence[Command]) -> list[Any]:
        """Run *script* once for each (key, *args) in one round trip, in order."""
        commands = [("EVALSHA", script.digest, 1, *call) for call in calls]
        try:
            return self.execute_many(commands)
        except NoScriptError:
            self.execute("SCRIPT", "LOAD", script.text)
            return self.execute_many(commands)

    def close(self) -> None:
        """Close the idle connections; the client can still be used and makes new ones."""
        while self._idle:
            self._idle.pop().disconnect()

    def _call(self, exchange: Callable[[Connection], _Answer]) -> _Answer:
        try:
            return self._exchange(exchange)
        except AskError as error:
            msg = f"Redis at {self.address} is a node of a cluster and this key is on another one"
            raise ConfigurationError(msg) from error
        except RedisError as error:
            if not _is_not_now(error):
                raise
            msg = f"Redis at {self.address} did not serve a command: {error}"
            raise StoreUnavailable(msg) from error

    def _exchange(self, exchange: Callable[[Connection], _Answer]) -> _Answer:
        connection = self._borrow()
        if connection is not None:
            try:
                return self._with(connection, exchange)
            except RedisConnectionError:
                # The server was restarted or closed idle connections: the others are stale too.
                self.close()
        return self._with(self._make(), exchange)

    def _with(self, connection: Connection, exchange: Callable[[Connection], _Answer]) -> _Answer:
        """Use *connection*, which is kept unless the exchange broke off with replies under way."""
        try:
            answer = exchange(connection)
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


def _is_not_now(error: RedisError) -> bool:
    return isinstance(error, _NOT_NOW) or _NOT_NOW_CODE.match(str(error)) is not None


def _connector(url: str, timeout: float) -> tuple[Callable[[], Connection], str]:
    """Return what makes a connection, and the address without the password."""
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
