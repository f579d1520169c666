"""Quorum queues of RabbitMQ for what must not be dropped: letters, and what it gave up itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The first release whose quorum queues drop a message after 20 returns unless told otherwise; it
#: has no mirrored queues any more.
LIMITS_BY_DEFAULT: Final = 4


def arguments_for(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return how such a queue is declared on the server with *properties*."""
    limit = {"x-delivery-limit": -1} if release_of(properties) >= LIMITS_BY_DEFAULT else {}
    return {"x-queue-type": "quorum", **limit}


def release_of(properties: Mapping[str, Any]) -> int:
    """Return the first number of a server's version; 0 where it tells none."""
    number = str(properties.get("version", "")).partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() else 0
