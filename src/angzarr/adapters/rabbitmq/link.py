"""One AMQP connection for dead letters: bounded in time, with the topology of spec L2.

py-amqp (kombu's own client) is used directly because all its waits take a time-out and its
confirms come as events, so that a batch waits for them together.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import amqp

from angzarr.adapters.rabbitmq.frames import frame_handler
from angzarr.dead_letters.names import EXCHANGE, queue_name, routing_key
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable

#: What py-amqp raises when the other side or the network fails.
FAILURES: Final = (amqp.exceptions.AMQPError, OSError)
#: The first release whose quorum queues drop a letter after 20 returns unless told otherwise.
_LIMITS_BY_DEFAULT: Final = 4

_PORTS: Final = {"amqp": 5672, "pyamqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where one broker is; `str` shows host and port only, the rest may be secret."""

    host: str
    port: int
    virtual_host: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    tls: Mapping[str, Any] | None = field(repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Cluster(tuple[Address, ...]):
    """The brokers of one cluster, tried in turn."""

    __slots__ = ()

    def __str__(self) -> str:
        return " or ".join(map(str, self))


def read_cluster(urls: str, tls: Mapping[str, Any] | None = None) -> Cluster:
    """Read amqp:// or amqps:// URLs, split by ';'; raises ConfigurationError, repeating none.

    Over amqps the broker's certificate and name are checked; *tls* holds py-amqp's ssl options.
    """
    return Cluster(_read_address(url.strip(), tls) for url in urls.split(";"))


def _read_address(url: str, tls: Mapping[str, Any] | None) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        msg = "the address of RabbitMQ must read amqp://user:password@host:port/virtual-host"
        raise ConfigurationError(msg) from error
    host = parts.hostname or "localhost"
    return Address(
        host=host,
        port=port,
        virtual_host=unquote(parts.path.removeprefix("/")) or "/",
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        tls={"server_hostname": host, **(tls or {})} if tls or parts.scheme == "amqps" else None,
    )


def connect(cluster: Cluster, *, timeout: float, heartbeat: int = 0) -> Link:
    """Return a link to the first broker that answers; raises what the last one made of it."""
    *others, last = cluster
    for address in others:
        with contextlib.suppress(*FAILURES):
            return Link(address, timeout=timeout, heartbeat=heartbeat)
    return Link(last, timeout=timeout, heartbeat=heartbeat)


@contextlib.contextmanager
def told(cluster: Cluster) -> Iterator[None]:
    """Turn a failure of the client into DeadLetterQueueUnavailable with one sentence."""
    try:
        yield
    except FAILURES as error:
        msg = f"RabbitMQ at {cluster} does not take dead letters: {reason_of(error)}"
        raise DeadLetterQueueUnavailable(msg) from error


def reason_of(error: BaseException) -> str:
    """Return what *error* says, on one line."""
    text = getattr(error, "reply_text", None) or str(error)
    return f"{type(error).__name__} {' '.join(str(text).split())[:200]}".rstrip()


class Link:
    """A connection and its channel; belongs to one thread at a time and to one process."""

    def __init__(self, address: Address, *, timeout: float, heartbeat: int = 0) -> None:
        self.connection = amqp.Connection(
            host=str(address),
            userid=address.user,
            password=address.password,
            login_method="PLAIN",
            virtual_host=address.virtual_host,
            ssl=dict(address.tls) if address.tls else False,
            connect_timeout=timeout,
            read_timeout=timeout,
            write_timeout=timeout,
            heartbeat=heartbeat,
            frame_handler=frame_handler,  # a letter of others may be written in any way
        )
        self.connection.connect()
        try:
            self.channel = self._open_channel()
        except FAILURES:
            self.connection.collect()
            raise
        self._declared: set[str] = set()

    def declare(self, domain: str) -> str:
        """Make sure that *domain*'s queue exists and is bound; return its name.

        A queue that exists is taken as it is, whatever its arguments.
        """
        name = queue_name(domain)
        key = routing_key(domain)
        if key in self._declared:
            return name
        setup = self._open_channel()
        setup.exchange_declare(EXCHANGE, "topic", durable=True, auto_delete=False)
        try:
            setup.queue_declare(name, passive=True)
        except amqp.exceptions.NotFound:
            setup.queue_declare(
                name, durable=True, auto_delete=False, arguments=self._queue_arguments()
            )
        setup.queue_bind(name, EXCHANGE, key)
        setup.close()
        self._declared.add(key)
        return name

    def forget_queues(self) -> None:
        """Declare every queue anew when it is next needed."""
        self._declared.clear()

    def drain(self, timeout: float) -> bool:
        """Handle what the broker says within *timeout* seconds; False if it said nothing."""
        try:
            self.connection.drain_events(timeout=max(timeout, 0.001))
        except socket.timeout:  # noqa: UP041  py-amqp raises it by this name
            return False
        return True

    def close(self) -> None:
        """Close in good order if the broker still answers, else cut the connection."""
        with contextlib.suppress(*FAILURES):
            self.connection.close()
        self.cut()

    def cut(self) -> None:
        """Cut the connection."""
        with contextlib.suppress(*FAILURES):
            self.connection.collect()

    def leave(self) -> None:
        """Close a forked child's copy of the socket without a word: its parent still uses it."""
        transport = self.connection.transport
        if transport is not None and transport.sock is not None:
            transport.sock.close()
            transport.sock = None

    def _open_channel(self) -> Any:
        channel = self.connection.channel()
        channel.auto_decode = False  # letters are bytes whatever their content encoding says
        return channel

    def _queue_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"x-queue-type": "quorum"}
        version = str(self.connection.server_properties.get("version", ""))
        if int(version.partition(".")[0] or 0) >= _LIMITS_BY_DEFAULT:
            arguments["x-delivery-limit"] = -1
        return arguments
