"""Group: failures that look alike, by their fingerprint; who looks after them (spec A3, A5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from angzarr.analysis.entry import FailureClass, HistoryLine


class GroupStatus(StrEnum):
    """Where a group stands with the people who look after it."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"  # somebody looks into it
    FIXED = "fixed"  # its cause is said to be gone
    REGRESSED = "regressed"  # it failed again after it was said to be fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All entries of one fingerprint, counted. Times are UTC-aware; absent texts are empty.

    What varies from entry to entry (domain, message, class …) is that of the one filed last.
    """

    fingerprint: str
    handler_name: str = ""
    domain: str = ""
    event_type: str = ""
    reason: str = ""
    error_type: str = ""
    error_message: str = ""
    failure_class: FailureClass | None = None
    first_failed_at: datetime
    last_failed_at: datetime
    #: Entries, those that nobody is done with, letters filed.
    entries: int = 0
    open_entries: int = 0
    occurrences: int = 0
    #: Entries by status; a status that none has may be missing.
    by_status: Mapping[str, int] = field(default_factory=dict)
    status: GroupStatus = GroupStatus.NEW
    owner: str = ""
    note: str = ""
    #: No alert speaks of the group before; None: it is not muted.
    muted_until: datetime | None = None
    #: Counts what people change; a change that names an older one does nothing.
    revision: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """What a person changes about a group; None: it stays as it is."""

    status: GroupStatus | None = None
    owner: str | None = None
    note: str | None = None
    muted_until: datetime | None = None
    #: Ends a mute; wins over `muted_until`.
    unmute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups; None: any. Times bound `last_failed_at`: `since` ≤ it < `until`."""

    handler_name: str | None = None
    domain: str | None = None
    error_type: str | None = None
    owner: str | None = None
    status: GroupStatus | None = None
    #: Only groups with entries that nobody is done with.
    open_only: bool = True
    since: datetime | None = None
    until: datetime | None = None
    #: What the fingerprint begins with.
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """Groups, the one that failed last first; `next` is the cursor of the next page, or empty."""

    groups: tuple[Group, ...]
    next: str = ""


class Groups(Protocol):
    """The groups of a ledger. Every verb raises LedgerUnavailable when the database is away.

    Counts are those of the ledger at the same moment: both change in one transaction.
    """

    @abstractmethod
    def get_groups(
        self, wanted: GroupFilter = GroupFilter(), /, *, limit: int = 100, after: str = ""
    ) -> GroupPage:
        """Return a page of groups, following the cursor *after*; ValueError if it is none."""

    @abstractmethod
    def open_group(self, fingerprint: str, /) -> Group | None:
        """Return the group of this fingerprint."""

    @abstractmethod
    def amend(
        self, fingerprint: str, amendment: Amendment, /, *, revision: int, by: str
    ) -> Group | None:
        """Change what people say of a group if it is at *revision*; None: it is not."""

    @abstractmethod
    def group_history(self, fingerprint: str, /) -> tuple[HistoryLine, ...]:
        """Return what people did with the group, oldest line first."""
