"""What Kafka says of a message besides its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from angzarr.dead_letters.record import ForeignRecord


def record_of(message: Any, headers: Sequence[tuple[str, bytes | None]]) -> ForeignRecord:
    """Return key, place and time of *message*, with its *headers*; a tombstone has no value."""
    kind, at = message.timestamp()
    properties: dict[str, Any] = {} if kind == TIMESTAMP_NOT_AVAILABLE else {"timestamp": at}
    if message.value() is None:
        properties["tombstone"] = True
    return ForeignRecord(
        broker="kafka",
        place={
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
        },
        is_unique=True,
        key=message.key(),
        headers=tuple(headers),
        properties=properties,
    )
