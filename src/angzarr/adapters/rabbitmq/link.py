"""One AMQP connection for dead letters: bounded in time, and told from a broker that refuses.

py-amqp (kombu's own client) is used directly because all its waits take a time-out and its
confirms come as events, so that a batch waits for them together.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import amqp

from angzarr.adapters.rabbitmq.address import Address, Cluster
from angzarr.adapters.rabbitmq.cork import Cork
from angzarr.adapters.rabbitmq.frames import frame_handler
from angzarr.adapters.rabbitmq.hearing import Hearing
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.adapters.rabbitmq.topology import Topology
from angzarr.dead_letters import names as quorum_queue
from angzarr.errors import DeadLetterQueueUnavailable

#: What py-amqp raises when the other side or the network fails.
FAILURES: Final = (amqp.exceptions.AMQPError, OSError)


def connect(cluster: Cluster, **options: Any) -> Link:
    """Return a link to the first broker that answers; raises what the last one made of it."""
    *others, last = cluster
    for address in others:
        with contextlib.suppress(*FAILURES):
            return Link(address, **options)
    return Link(last, **options)


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


class _Connection(amqp.Connection):
    """Is not told when the broker blocks publishers: it would look for that before each letter.

    A broker that blocks confirms nothing, which is what a publisher waits for.
    """

    negotiate_capabilities: ClassVar = {
        **amqp.Connection.negotiate_capabilities, "connection.blocked": False
    }  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.hearing = Hearing()


class Link:
    """A connection and its channel; belongs to one thread at a time and to one process."""

    def __init__(
        self,
        address: Address,
        *,
        timeout: float,
        check: QueueCheck,
        heartbeat: int = 0,
        create_missing: bool = True,
    ) -> None:
        cork = Cork()
        self.corked = cork.corked
        self.connection = _Connection(
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
            frame_writer=cork.frame_writer,
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
            self.connection.hearing.look(self.connection)
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
        """Return a new channel."""
        channel = self.connection.channel()
        channel.auto_decode = False  # letters are bytes whatever their content encoding says
        return channel

    def queue_arguments(self) -> dict[str, Any]:
        """Return how a queue of letters is declared."""
        return quorum_queue.arguments_for(self.connection.server_properties)
