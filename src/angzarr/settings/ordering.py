"""OrderingSettings: the part that says where the order of events is kept, and how much may wait."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from angzarr.settings.base import Section, Span


class OrderingSettings(Section):
    """Lanes of ordered handlers and checkpoints of projections (spec P2, P3)."""

    #: A database; by default that of the event books, else the claim store if it is a PostgreSQL.
    url: str | None = Field(default=None, repr=False)
    #: Whether whoever uses tables of the order that are behind upgrades them.
    migrate: bool = True
    #: Events that are parked in one lane at most; what comes beyond is postponed, never lost.
    most_parked: int = Field(default=10_000, ge=1)
    #: How long events wait behind a missing one before it is reported.
    gap_after: Span = Field(default=timedelta(minutes=5), gt=timedelta(0))
