"""Upkeep: what operators do with the ledger itself: its tables, and what is counted of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from angzarr.maintenance.schema_versions import TablesUpkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Recounted:
    """One step of a recount."""

    #: How many groups were compared with their entries.
    groups: int
    #: Fingerprints of those that were not counted as they are.
    wrong: tuple[str, ...] = ()


class LedgerUpkeep(TablesUpkeep, Protocol):
    """The ledger as a database to look after; every verb raises LedgerUnavailable."""

    @abstractmethod
    def recount(self, *, mend: bool) -> Iterator[Recounted]:
        """Compare what is counted with what is there, and mend it if *mend*, step by step."""
