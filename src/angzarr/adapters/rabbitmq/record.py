"""What RabbitMQ says of a message besides its body."""

from __future__ import annotations

from typing import Any, Final

from angzarr.dead_letters.record import ForeignRecord

#: The property that is a table of headers.
_HEADERS: Final = "application_headers"


def record_of(message: Any, queue: str) -> ForeignRecord:
    """Return headers, properties and place of *message*, which lay in *queue*.

    RabbitMQ numbers no messages: two of the same bytes, headers and properties are one.
    """
    properties = {name: value for name, value in message.properties.items() if value is not None}
    headers = properties.pop(_HEADERS, None) or {}
    info = message.delivery_info or {}
    return ForeignRecord(
        broker="rabbitmq",
        place={
            "queue": queue,
            "exchange": info.get("exchange") or "",
            "routing_key": info.get("routing_key") or "",
        },
        headers=tuple((str(name), value) for name, value in headers.items()),
        properties=properties,
    )
