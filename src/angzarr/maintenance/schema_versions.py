"""Revisions of tables: which they have, which this release needs, and who looks after them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class SchemaStanding(StrEnum):
    """Where tables stand against what this release needs."""

    MISSING = "missing"
    BEHIND = "behind"
    CURRENT = "current"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class Revision:
    """The revision of the tables, empty where there are none, and the one that is needed.

    Revisions are numbers of one width, so they compare as text.
    """

    found: str
    needed: str

    @property
    def standing(self) -> SchemaStanding:
        """Where the tables stand."""
        if not self.found:
            return SchemaStanding.MISSING
        if self.found == self.needed:
            return SchemaStanding.CURRENT
        return SchemaStanding.BEHIND if self.found < self.needed else SchemaStanding.NEWER


class TablesUpkeep(Protocol):
    """Tables to look after that are upgraded together; every verb raises Unavailable."""

    @abstractmethod
    def revision(self) -> Revision:
        """The revision of the tables; changes nothing."""

    @abstractmethod
    def upgrade(self) -> Revision:
        """Bring the tables to what this release needs; return what they were."""

    @abstractmethod
    def differences(self) -> Sequence[str]:
        """The differences of the tables from those that this release expects."""

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""
