"""Wires: how many messages reach a broker in few round trips, each one known to be there.

A wire marks each leg it carried *confirmed*, or *lost* where the connection ended before the
broker said so. It tries nothing twice; its owner does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kombu.transport import pyamqp

from angzarr.adapters.celery.publish.batch_item import Leg
from angzarr.adapters.celery.publish.confirmed_wire import ConfirmedWire
from angzarr.adapters.celery.publish.pipelined_wire import PipelinedWire


class Wire(Protocol):
    """Carries messages to the broker and waits until they are there."""

    def carry(self, legs: Sequence[Leg]) -> None:
        """Send *legs*; raises what the broker or the connection refused, after marking all."""

    def tell(self, send: Callable[[Any], None]) -> None:
        """Let *send* publish with the producer it is given, and wait."""

    def close(self) -> None:
        """Let go; nothing is sent."""


def wire_for(producer: Any) -> Wire | None:
    """Return a wire on *producer*'s connection, or None where messages go one by one."""
    channel = producer.channel
    if isinstance(channel, pyamqp.Channel):
        confirms = channel.connection.server_capabilities.get("publisher_confirms")
        return ConfirmedWire(channel.connection) if confirms else None
    batches = getattr(channel, "create_publish_batch", None)
    if batches is None or not getattr(channel, "supports_batch_publish", True):
        return None
    return PipelinedWire(channel, producer)
