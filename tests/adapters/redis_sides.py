"""Connections over angzarr's Redis transport and over kombu's own, and what comes out of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Producer, Queue

import angzarr.adapters.redis.transport  # noqa: F401 - registers our schemes
from polling import PATIENCE

OURS = "angzarr.adapters.redis.transport:RedisTransport"
STOCK = "kombu.transport.redis:Transport"

#: A claim about what users of stock kombu rely on: stock itself must keep it as well.
each_side = pytest.mark.parametrize("side", [OURS, STOCK], ids=["ours", "stock"])
#: A claim about two programs, one of which was moved over already.
both_ways = pytest.mark.parametrize(
    ("one", "other"), [(OURS, STOCK), (STOCK, OURS)], ids=["ours-stock", "stock-ours"]
)


def connect(url: str, side: str | None = OURS, *, ssl: Any = False, **options: Any) -> Connection:
    """Return a connection to be used in a `with`; *options* are transport options.

    None is ours as well, for addresses whose scheme says it.
    """
    if side == STOCK:
        # The longest BRPOP: stock waits for its end when it closes, and else it is a second. On a
        # slow machine its health check is due amid a test, and waits for a paused server for ever.
        options = {"polling_interval": 0.05, "health_check_interval": 0, **options}
    connection = Connection(url, transport=side, ssl=ssl, transport_options=options)
    used = connection.get_transport_cls()
    assert used.__module__ == (side or OURS).partition(":")[0]  # some addresses say which
    return connection


def publish(connection: Connection, queue: str, bodies: Any, **properties: Any) -> None:
    """Publish each of *bodies* to *queue* on a channel of its own."""
    with connection.channel() as channel:
        producer = Producer(channel)
        for body in bodies:
            producer.publish(body, routing_key=queue, **properties)


class Inbox:
    """A consumer and all that it was given so far, in order."""

    def __init__(
        self,
        connection: Connection,
        queues: Iterator[str | Queue],
        *,
        no_ack: bool,
        prefetch: int,
        ack: bool,
    ) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.channel = connection.channel()
        self._acks = ack and not no_ack
        self.consumer = Consumer(
            self.channel,
            # Undeclared names: the default exchange brings what is sent to a queue's name.
            [one if isinstance(one, Queue) else Queue(one, channel=self.channel) for one in queues],
            on_message=self._take,
            no_ack=no_ack,
            prefetch_count=prefetch or None,
            auto_declare=True,
        )
        self.consumer.consume()

    def _take(self, message: Any) -> None:
        self.messages.append(message)
        if self._acks:
            message.ack()

    @property
    def bodies(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def wait(self, count: int, seconds: float = PATIENCE) -> list[Any]:
        """Drain until *count* messages were given in all, and return their bodies."""
        deadline = time.monotonic() + seconds
        while len(self.messages) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                pytest.fail(f"{len(self.messages)} of {count} messages: {self.bodies!r:.500}")
            self.turn(min(left, 1))
        return self.bodies

    def turn(self, seconds: float = 0.05) -> None:
        """Drain once."""
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=seconds)

    def rest(self, seconds: float = 0.3) -> list[Any]:
        """Drain until nothing was given for *seconds*, and return all bodies."""
        before = -1
        while len(self.messages) > before:
            before = len(self.messages)
            self.turn(seconds)
        return self.bodies


@contextmanager
def consuming(
    connection: Connection,
    *queues: str | Queue,
    no_ack: bool = False,
    prefetch: int = 0,
    ack: bool = True,
) -> Iterator[Inbox]:
    """Consume from *queues* on a channel of its own; *ack* acknowledges each message at once."""
    inbox = Inbox(connection, iter(queues), no_ack=no_ack, prefetch=prefetch, ack=ack)
    try:
        yield inbox
    finally:
        inbox.channel.close()


def held(raw: redis.Redis[Any]) -> int:
    """Return how many messages are with a consumer, unacknowledged, on either side."""
    hashes = list(raw.scan_iter("*unacked*", count=1000, _type="hash"))
    return sum(raw.hlen(key) for key in hashes)


def passes_a_message(connection: Connection, name: str) -> None:
    """Send one message to a queue and one to all, and get both back after a wait."""
    exchange = Exchange(f"{name}-all", "fanout")
    with (
        consuming(connection, name) as inbox,
        consuming(connection, Queue(f"{name}-mine", exchange), no_ack=True) as heard,
    ):
        inbox.turn()  # it waits from now on, and has to be woken
        publish(connection, name, ["x"], priority=3)
        assert inbox.wait(1) == ["x"]
        while not heard.messages:
            Producer(connection, exchange).publish("y")
            heard.turn()


def open_once(connection: Connection) -> None:
    """Connect without the two seconds that kombu sleeps before it gives up."""
    connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
