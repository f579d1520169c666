"""The broker connection of an app, which uses this package's own transports."""

from __future__ import annotations

import ssl as tls
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click
from kombu import Connection
from kombu.connection import ConnectionPool, PooledConnection
from kombu.transport import get_transport_cls

from angzarr.errors import MissingExtra

#: Scheme of a broker URL → the transport it gets here. Named, not imported: a client is an extra.
_REDIS: Final = {
    "redis": "angzarr.adapters.redis.transport:RedisTransport",
    "rediss": "angzarr.adapters.redis.transport:RedisTlsTransport",
    "sentinel": "angzarr.adapters.redis.transport:SentinelTransport",
}
_OTHERS: Final = {
    "amqp": "angzarr.adapters.rabbitmq.transport:RabbitMQTransport",
    "pyamqp": "angzarr.adapters.rabbitmq.transport:RabbitMQTransport",
    "amqps": "angzarr.adapters.rabbitmq.transport:RabbitMQTlsTransport",
    "memory": "angzarr.adapters.celery.memory_transport:MemoryTransport",
    "sqs": "angzarr.adapters.sqs.transport:SqsTransport",
}
#: Scheme of a broker URL → the client that its transport needs, and the extra that brings it.
_CLIENTS: Final = {
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "sentinel": ("redis", "redis"),
    "sqs": ("boto3", "sqs"),
}


class MissingClient(MissingExtra, click.ClickException):
    """A MissingExtra that ``celery worker`` prints as one sentence."""


@contextmanager
def client_of(broker: str) -> Iterator[None]:
    """Turn what *broker*'s transport cannot import into MissingClient, which says what to install.

    kombu's own transports import more than their client, so any module that is missing tells it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        client = _CLIENTS.get(broker.partition(":")[0])
        if client is None:
            raise
        raise MissingClient(*client) from error


class AngzarrConnection(Connection):
    """kombu's connection; URL, pools and what is shown of it stay as they are."""

    @property
    def transports(self) -> Mapping[str, str]:
        """Scheme → transport."""
        return {**_OTHERS, **_REDIS}

    def get_transport_cls(self) -> Any:
        """Our transport for a scheme that has one, also after a switch to another URL."""
        named = self.transport_cls
        if isinstance(named, str) and named in self.transports:
            return get_transport_cls(self.transports[named])
        return super().get_transport_cls()

    def Pool(self, limit: int | None = None, **options: Any) -> Any:  # noqa: N802 - kombu's name
        """A pool of connections of this class; kombu's own pool would use its own transports."""
        return _Pool(self, limit, **options)

    def info(self) -> Any:
        """The report of ``celery inspect stats``, without our own callables."""
        told = super().info()
        options = told.get("transport_options") or {}
        shown = {name: value for name, value in options.items() if not callable(value)}
        return {**told, "transport_options": shown}

    def __eqhash__(self) -> Any:
        """Share no pool with connections to the same place on another transport."""
        return hash((super().__eqhash__(), type(self)))

    def _init_params(self, *args: Any, **given: Any) -> None:
        """Check the server's certificate where nothing is said; kombu would not."""
        ours = given.get("transport") in self.transports
        if ours and given["transport"] == "rediss" and not given.get("ssl"):
            given["ssl"] = {"ssl_cert_reqs": tls.CERT_REQUIRED}
        super()._init_params(*args, **given)


class _PooledConnection(PooledConnection, AngzarrConnection):
    @property
    def transports(self) -> Mapping[str, str]:
        """Those of the connection that the pool is of."""
        of_pool: Mapping[str, str] = self._pool.connection.transports
        return of_pool


class _Pool(ConnectionPool):
    def new(self) -> Any:
        """Another connection of the pool."""
        return _PooledConnection(self, **dict(self.connection._info(resolve=False)))  # noqa: SLF001 - as kombu's does


class KombusRedisConnection(AngzarrConnection):
    """The same with kombu's own transports for Redis."""

    @property
    def transports(self) -> Mapping[str, str]:
        """Scheme → transport."""
        return _OTHERS
