"""Space: where a green space lies in one kind of database, and what is different there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from sqlalchemy import Connection

from angzarr.projections.shadow_table import Plan


class Layout(NamedTuple):
    """A table of the read model."""

    name: str
    #: Those that are copied: generated columns make themselves.
    columns: tuple[str, ...]
    #: Those of them that the database numbers: they may differ in two equal read models.
    numbered: frozenset[str]
    #: All of it that matters to a copy, as text.
    shape: str


class Space(ABC):
    """One connection, to one database, on which unqualified names mean the green tables first."""

    #: Set by `enter`.
    connection: Connection

    def __init__(self, plan: Plan, *, in_place: bool = False) -> None:
        """*in_place*: unqualified names mean the live tables, and no others are made."""
        self.plan = plan
        self.in_place = in_place
        self._held = ExitStack()

    @abstractmethod
    def enter(self) -> None:
        """Connect, and keep other rebuilds out; raises RebuildError."""

    @abstractmethod
    def exists(self) -> bool:
        """Tell, in a transaction, whether there is one from an earlier run."""

    @abstractmethod
    def layouts(self) -> Sequence[Layout]:
        """Return, in a transaction, the live tables, in the order of the plan.

        Raises RebuildError for what cannot be rebuilt so.
        """

    @abstractmethod
    def layout(self, name: str) -> Layout:
        """Return one of them as it is now; without columns, or RebuildError: it is not there."""

    @abstractmethod
    def make(self) -> None:
        """Make empty tables like the live ones, in a transaction."""

    @abstractmethod
    def aim(self) -> None:
        """Let unqualified names mean the green tables from now on, outside of a transaction.

        In place they go on meaning the live ones.
        """

    @abstractmethod
    def watch(self) -> None:
        """Let `strays` leave out what was written up to now."""

    @abstractmethod
    def strays(self) -> str:
        """Name a table that the transaction has written outside of the space; empty: none."""

    @abstractmethod
    def denied(self) -> str:
        """Name a table outside of the space that a statement was not let write to; empty: none."""

    @abstractmethod
    def exclusive(self, *, on: bool) -> None:
        """Say whether the next transactions write to the live tables, too."""

    @abstractmethod
    def writable(self, *, on: bool) -> None:
        """Say whether the live tables may be written to now, where that is watched."""

    @abstractmethod
    def hold_still(self) -> None:
        """Let the transaction, which begins with this, read everything as it is now."""

    @abstractmethod
    def outlive_crashes(self) -> None:
        """Let the commit of this transaction wait until it outlives a crash of the server."""

    @abstractmethod
    def lock(self, tables: Sequence[str]) -> None:
        """Keep writers of the live *tables* out, but no readers, until the transaction ends."""

    @abstractmethod
    def renumber(self, table: Layout) -> None:
        """Let the live *table* number its next rows beyond those that are there."""

    @abstractmethod
    def check(self, table: Layout) -> None:
        """Raise RebuildError if a live *table* refers to rows that are not there."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the space as far as that can be a part of the transaction."""

    @abstractmethod
    def removed(self) -> None:
        """Remove what `remove` had to leave, after the commit."""

    @abstractmethod
    def live(self, table: str) -> str:
        """Return the live *table* as it is written in a statement."""

    @abstractmethod
    def green(self, table: str) -> str:
        """Return the green *table* as it is written in a statement."""

    def quoted(self, name: str) -> str:
        """Return *name* as it is written in a statement."""
        return self.connection.dialect.identifier_preparer.quote_identifier(name)

    def run(self, statement: str) -> None:
        """Run *statement*, all names of which are quoted."""
        self.connection.exec_driver_sql(statement)

    def close(self) -> None:
        """Let the connection go, and others in; safe to call twice."""
        self._held.close()
