"""Brokers in this process: kombu's memory transport, where each name is a broker of its own.

kombu's has one set of queues for the whole process, whatever the URL says: two apps of one test
session would take each other's messages.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, Final

from kombu.transport import memory
from kombu.transport.virtual import BrokerState


@dataclass(slots=True)
class Broker:
    """The queues of one broker by name, and how its exchanges are bound."""

    queues: dict[str, Queue[Any]] = field(default_factory=dict)
    state: Any = field(default_factory=BrokerState)

    def waiting(self) -> int:
        """Return how many messages nobody has taken."""
        return sum(queue.qsize() for queue in list(self.queues.values()))


_BROKERS: Final[dict[str, Broker]] = {}
_LOCK: Final = threading.Lock()


def broker(name: str) -> Broker:
    """Return the broker *name* of this process: the host of its URL."""
    with _LOCK:
        return _BROKERS.setdefault(name, Broker())


def forget_broker(name: str) -> None:
    """Let the broker *name* go with all that is in it."""
    with _LOCK:
        _BROKERS.pop(name, None)


class Channel(memory.Channel):
    """kombu's channel, on the queues of its own broker."""

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.queues = connection.broker.queues


class Transport(memory.Transport):
    """The transport of ``memory://`` URLs in an Angzarr app."""

    Channel = Channel

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.broker = broker(client.hostname or "localhost")
        self.state = self.broker.state
