"""Facts: what happened to each delivery, appended and never changed (spec F1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from angzarr.runtime.fast_init import fast_init


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact. `id` is its idempotency key: appending it twice keeps the first."""

    id: str
    type: str  # "lifecycle", "error", "cost", …
    subtype: str  # "handled", "duplicate", "retried", "max_retries_exceeded", …
    at: datetime
    tenant_id: str | None = None
    entity_id: str | None = None  # the aggregate's root
    tool_id: str | None = None  # the handler
    asset_id: str | None = None
    config_id: str | None = None
    config_version: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON; what is not is written as text


class FactLog(Protocol):
    """Where facts go. It must never fail or block a delivery: what is away is spooled or logged."""

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:
        """Take *facts*; raises nothing. Order is kept per caller.

        With *before_ack* they may be written with those of other events: at `GroupCommit.write`,
        which comes before the acknowledgement that makes them true.
        """

    def close(self) -> None:
        """Write what is still held back, within two seconds or so; safe to call twice."""
