"""Checks of the server: Redis 7 or a relative, no cluster, and no eviction of keys.

A Redis that makes room by deleting keys loses queues, delays and claims in silence. It is asked
when a worker starts, and each minute while it runs: a policy can be set at any time. A server that
is away is not asked. One that refuses the question (a managed Redis, an ACL) only gets a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from angzarr.adapters.redis.link import RedisClient, is_not_now
from angzarr.doctor.redis_rules import NO_EVICTION, evicts, unfitness
from angzarr.errors import ConfigurationError, StoreUnavailable, UnsafeSetting

#: Servers that were looked at, by address; a process has few.
_SEEN: set[tuple[Any, ...]] = set()


class UnfitServer(OperationalError):
    """A server on which this transport would lose messages or not work at all."""


def check_server(channel: Any) -> None:
    """Raise UnfitServer if *channel*'s server is too old, or a node of a cluster.

    A server that may not be asked (ACL) is taken as it is.
    """
    settings = channel.pool.connection_kwargs
    address = tuple(settings.get(part) for part in ("host", "port", "path"))
    if address in _SEEN:
        return
    try:
        with channel.conn_or_acquire() as client:
            told = client.info("everything")
    except RedisError:
        return
    _refuse_unfit(told)
    _SEEN.add(address)


def _refuse_unfit(told: dict[str, Any]) -> None:
    version, cluster = str(told.get("redis_version", "")), bool(told.get("cluster_enabled"))
    if unfit := unfitness(version, cluster=cluster):
        msg = ": ".join(unfit)
        raise UnfitServer(msg)


_log = logging.getLogger("angzarr.worker")

#: Servers that need not be asked again, by address.
_ASKED: set[str] = set()
#: Those that do not tell.
_SILENT: set[str] = set()

#: What `INFO memory` says, by field.
Told = Mapping[str, Any]


def check_store(url: str) -> None:
    """Raise UnsafeSetting if the Redis at *url*, with claims and delays, may delete keys."""
    client = RedisClient(url)
    try:
        _check(lambda: fields_of(client.execute("INFO", "memory")), client.address)
    finally:
        client.close()


def check_broker(connect: Callable[[], Any]) -> None:
    """Raise ConfigurationError if the Redis that *connect* makes a connection to is unfit."""
    with connect() as connection:
        away = (*connection.connection_errors, *connection.channel_errors, KombuError, OSError)
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            with connection.default_channel.conn_or_acquire() as client:
                _check(lambda: client.info("memory"), connection.as_uri())
        except UnfitServer as error:
            raise ConfigurationError(str(error)) from error
        except away:
            return  # Celery waits for it


def forget_asked() -> None:
    """Ask all servers again, except for those that may not be asked."""
    _ASKED.clear()


def _check(ask: Callable[[], Told], where: str) -> None:
    if where in _ASKED or where in _SILENT:
        return
    try:
        told = ask()
    except (RedisError, StoreUnavailable) as error:
        if not may_not_be_asked(error):
            return  # it is away
        told = {}
    if "maxmemory" not in told or "maxmemory_policy" not in told:
        _log.warning(
            "eviction_unknown: Redis at %s does not tell its maxmemory-policy (INFO memory); make"
            " sure that it is %s, or messages are lost when its memory is full", where, NO_EVICTION,
        )  # fmt: skip
        _SILENT.add(where)
    elif evicts(int(told["maxmemory"]), told["maxmemory_policy"]):
        raise UnsafeSetting(_refusal(where, told))
    _ASKED.add(where)


def may_not_be_asked(error: Exception) -> bool:
    """True if a server that says *error* is there, and forbids or lacks the command."""
    said = error.__cause__ if isinstance(error, StoreUnavailable) else error
    if isinstance(said, NoPermissionError):
        return True
    return isinstance(said, ResponseError) and not is_not_now(said)


def _refusal(where: str, told: Told) -> str:
    return (
        f"messages would be lost: Redis at {where} deletes keys when its"
        f" memory is full (maxmemory {told['maxmemory']}, maxmemory-policy"
        f" {told['maxmemory_policy']}), be it queues, delays or claims: set maxmemory-policy"
        f" {NO_EVICTION} on that server"
    )


def fields_of(text: str) -> dict[str, str]:
    """The fields of a reply to ``INFO``."""
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in pairs if colon}
