"""The client of Redis stores: one reply per call, quickly or as StoreUnavailable."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from redis.connection import ConnectionPool
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from angzarr.adapters.redis.link import Argument, Command, Connection, Link, Script
from angzarr.errors import ConfigurationError, StoreUnavailable

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

    def run(self, script: Script, key: str, *args: Argument) -> Any:
        """Run *script* on one key in one round trip; Redis is taught the script if it must be."""
        return self._call(self._link.run, script, (key,), *args)

    def run_keys(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Run *script* on keys of one server in one round trip."""
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
            msg = f"Redis at {self.address} did not serve a command: {error}"
            raise StoreUnavailable(msg) from error


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
