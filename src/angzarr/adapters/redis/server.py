"""What kind of server is there: this transport needs Redis 7 or a relative, and no cluster."""

from __future__ import annotations

from typing import Any

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from angzarr.doctor.redis_rules import unfitness

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
