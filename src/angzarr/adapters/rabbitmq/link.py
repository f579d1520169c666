"""The AMQP connection for dead letters, with bounded waits, and the addresses of a cluster.

It uses py-amqp, kombu's own client, directly: all its waits take a time-out, and its confirms come
as events, so that a batch waits for them together.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import amqp

from angzarr.adapters.rabbitmq.py_amqp import AnswerCheck, WriteBuffer, frame_handler
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.adapters.rabbitmq.topology import Topology
from angzarr.dead_letters import names as quorum_queue
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable

_PORTS: Final = {"amqp": 5672, "pyamqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
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


class BrokerCluster(tuple[BrokerAddress, ...]):
    """The brokers of one cluster, tried in turn."""

    __slots__ = ()

    def __str__(self) -> str:
        return " or ".join(map(str, self))


def read_cluster(urls: str, tls: Mapping[str, Any] | None = None) -> BrokerCluster:
    """Read amqp:// or amqps:// URLs, split by ';'; raises ConfigurationError, repeating none.

    Over amqps the broker's certificate and name are checked; *tls* holds py-amqp's ssl options.
    """
    _check_files(tls or {})
    return BrokerCluster(_read_address(url.strip(), tls) for url in urls.split(";"))


def _read_address(url: str, tls: Mapping[str, Any] | None) -> BrokerAddress:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        msg = "the address of RabbitMQ must read amqp://user:password@host:port/virtual-host"
        raise ConfigurationError(msg) from error
    host = parts.hostname or "localhost"
    return BrokerAddress(
        host=host,
        port=port,
        virtual_host=unquote(parts.path.removeprefix("/")) or "/",
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        tls={"server_hostname": host, **(tls or {})} if tls or parts.scheme == "amqps" else None,
    )


def _check_files(tls: Mapping[str, Any]) -> None:
    """Refuse at start what would otherwise look like a broker that is away for ever."""
    if not tls:
        return  # OpenSSL takes 3 MB as soon as it is asked
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    certificate, key = tls.get("certfile"), tls.get("keyfile")
    if key and not certificate:
        msg = "RabbitMQ's TLS options name a keyfile without its certfile"
        raise ConfigurationError(msg)
    try:
        what = "ca_certs"
        if tls.get(what):
            context.load_verify_locations(tls[what])
        what = "certfile or keyfile"
        if certificate:
            context.load_cert_chain(certificate, key, password=_ask_nobody)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        msg = f"RabbitMQ's TLS option {what} cannot be used: {reason}"
        raise ConfigurationError(msg) from error


def _ask_nobody() -> str:
    """Answer openssl, which would ask a terminal for the passphrase of an encrypted key."""
    msg = "the key is encrypted, give one without a passphrase"
    raise ValueError(msg)


#: What py-amqp raises when the other side or the network fails.
FAILURES: Final = (amqp.exceptions.AMQPError, OSError)


def connect(cluster: BrokerCluster, **options: Any) -> LetterConnection:
    """A link to the first broker that answers; raises what the last one made of it."""
    *others, last = cluster
    for address in others:
        with contextlib.suppress(*FAILURES):
            return LetterConnection(address, **options)
    return LetterConnection(last, **options)


@contextlib.contextmanager
def told(cluster: BrokerCluster) -> Iterator[None]:
    """Turn a failure of the client into DeadLetterQueueUnavailable with one sentence."""
    try:
        yield
    except FAILURES as error:
        msg = f"RabbitMQ at {cluster} does not take dead letters: {reason_of(error)}"
        raise DeadLetterQueueUnavailable(msg) from error


def reason_of(error: BaseException) -> str:
    """The text of *error*, on one line."""
    text = getattr(error, "reply_text", None) or str(error)
    return f"{type(error).__name__} {' '.join(str(text).split())[:200]}".rstrip()


class _BoundedConnection(amqp.Connection):
    """Is not told when the broker blocks publishers: it would look for that before each letter.

    A broker that blocks confirms nothing, which is what a publisher waits for.
    """

    negotiate_capabilities: ClassVar = {
        **amqp.Connection.negotiate_capabilities, "connection.blocked": False
    }  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.answer_check = AnswerCheck()


class LetterConnection:
    """A connection and its channel; belongs to one thread at a time and to one process."""

    def __init__(
        self,
        address: BrokerAddress,
        *,
        timeout: float,
        check: QueueCheck,
        heartbeat: int = 0,
        create_missing: bool = True,
    ) -> None:
        buffer = WriteBuffer()
        self.buffered = buffer.buffered
        self.connection = _BoundedConnection(
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
            frame_writer=buffer.frame_writer,
        )
        self.connection.connect()
        try:
            self.channel = self.open_channel()
        except FAILURES:
            self.connection.collect()
            raise
        self.topology = Topology(
            self.open_channel,
            create=create_missing,
            arguments=self.queue_arguments(),
            check=check,
        )

    def drain(self, timeout: float) -> bool:
        """Handle what the broker says within *timeout* seconds; False if it said nothing.

        Raises what py-amqp does when the connection is lost, also where only silence tells it.
        """
        try:
            self.connection.drain_events(timeout=max(timeout, 0.001))
        except socket.timeout:  # noqa: UP041  py-amqp raises it by this name
            self.connection.answer_check.look(self.connection)
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

    def open_channel(self) -> Any:
        """A new channel."""
        channel = self.connection.channel()
        channel.auto_decode = False  # letters are bytes whatever their content encoding says
        return channel

    def queue_arguments(self) -> dict[str, Any]:
        """The arguments by which a queue of letters is declared."""
        return quorum_queue.arguments_for(self.connection.server_properties)
