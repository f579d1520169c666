"""Message: a broker message as it was received, complete enough to be published again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from angzarr.runtime.fast_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One broker message, raw. `queue` is where it was first sent, never a delay queue's name."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    queue: str
    exchange: str = ""
    routing_key: str = ""
    priority: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The Celery task name, or an empty string for a foreign message."""
        return str(self.headers.get("task") or "")

    @property
    def id(self) -> str:
        """The Celery task id, or an empty string for a foreign message."""
        return str(self.headers.get("id") or "")
