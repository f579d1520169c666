"""What kind of server is there: this transport needs Redis 7 or a relative, and no cluster."""

from __future__ import annotations

from typing import Any

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

#: Whose scripts may say that they run on a full server (Redis 7; Valkey starts at 7.2).
OLDEST = (7, 0)
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
    if told.get("cluster_enabled"):
        msg = (
            "Redis Cluster is not supported as a broker: the queues of one worker lie on several"
            " nodes. Use a single Redis or Sentinel (sentinel://…) for broker_url; claims may"
            " stay on the cluster"
        )
        raise UnfitServer(msg)
    version = str(told.get("redis_version", ""))
    if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        msg = (
            f"Redis {version} is too old for this transport, it needs Redis 7.0 or newer:"
            " upgrade it, or set redis_transport: kombu to use kombu's own"
        )
        raise UnfitServer(msg)
