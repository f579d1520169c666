"""What Pub/Sub says of a message besides its data."""

from __future__ import annotations

from typing import Any

from angzarr.dead_letters.record import ForeignRecord


def record_of(message: Any) -> ForeignRecord:
    """Return attributes, ordering key, id and time of *message*."""
    return ForeignRecord(
        broker="pubsub",
        place={"message_id": message.message_id},
        is_unique=True,
        key=message.ordering_key.encode() if message.ordering_key else None,
        headers=tuple(message.attributes.items()),
        properties={"publish_time": message.publish_time.isoformat()},
    )
