"""The memory broker: kombu's memory transport, where each name is a broker of its own.

kombu's memory transport has one set of queues for the whole process, whatever the URL says. Two
apps of one test session would take each other's messages.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, Final

from kombu.transport import memory
from kombu.transport.virtual import BrokerState


@dataclass(slots=True)
class MemoryBroker:
    """The queues of one broker by name, and how its exchanges are bound."""

    queues: dict[str, Queue[Any]] = field(default_factory=dict)
    state: Any = field(default_factory=BrokerState)

    def waiting(self) -> int:
        """The number of messages that wait in its queues."""
        return sum(queue.qsize() for queue in list(self.queues.values()))


_BROKERS: Final[dict[str, MemoryBroker]] = {}
_LOCK: Final = threading.Lock()


def memory_broker(name: str) -> MemoryBroker:
    """The broker *name* of this process: the host of its URL."""
    with _LOCK:
        return _BROKERS.setdefault(name, MemoryBroker())


def forget_broker(name: str) -> None:
    """Let the broker *name* go with all that is in it."""
    with _LOCK:
        _BROKERS.pop(name, None)


class MemoryChannel(memory.Channel):
    """kombu's channel, on the queues of its own broker."""

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.queues = connection.broker.queues


class MemoryTransport(memory.Transport):
    """The transport of ``memory://`` URLs in an Angzarr app."""

    Channel = MemoryChannel

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.broker = memory_broker(client.hostname or "localhost")
        self.state = self.broker.state
