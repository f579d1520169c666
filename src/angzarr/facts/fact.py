"""One fact, and the port of the log that keeps facts (spec F1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

from angzarr.runtime.fast_init import fast_init

#: The key of data under which it stands who appended a fact over HTTP.
APPENDED_BY: Final = "appended_by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was spent: *amount* of *currency* (ISO 4217), by whom and on whom (spec F2)."""

    amount: Decimal
    currency: str
    from_entity: str | None = None
    to_entity: str | None = None


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
    event_id: str | None = None
    trace_id: str | None = None  # of the W3C trace context, 32 hexadecimal digits
    asset_id: str | None = None
    config_id: str | None = None
    config_version: str | None = None
    #: The id of the error fact that this fact resolved.
    resolves: str | None = None
    cost: Cost | None = None  # of a fact of type "cost"
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON; what is not is written as text

    @property
    def by(self) -> str | None:
        """Who appended it over HTTP, whomever it names; of any other who did it, as `data` says."""
        named = (self.data.get(one) for one in (APPENDED_BY, "by"))
        return next((one for one in named if isinstance(one, str) and one), None)


class FactLog(Protocol):
    """Where facts go. It must never fail or block a delivery: what is away is spooled or logged."""

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:
        """Take *facts*; raises nothing. Order is kept per caller.

        With *before_ack* they may be written with those of other events: at `GroupCommit.write`,
        which comes before the acknowledgement that makes them true.
        """

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:
        """Take *facts* of a claim that ends now; raises nothing.

        Returned are the lines (`fact_text`) of those that the claim's ending is to keep. What is
        not returned has been taken as by `append`.
        """

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:
        """The lines of those of *facts* that `carry` would return; takes none, raises nothing."""

    def flush(self, within: timedelta, /) -> bool:
        """Wait until all that was appended outlives this process; raises nothing.

        False if that takes longer than *within*, or if some of it was dropped.
        """

    def close(self) -> None:
        """Write what is still held back, within two seconds or so; safe to call twice."""
