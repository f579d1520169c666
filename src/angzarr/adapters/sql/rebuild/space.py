"""Where shadow tables lie, how they replace the live ones, and why that is refused.

Equal rows have equal digests, whatever their order; a digest needs bounded memory.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from angzarr.errors import StoreUnavailable
from angzarr.events.event import Event
from angzarr.projections.shadow_table import Compared, Plan
from angzarr.runtime.text import printable


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
        """True, in a transaction, if there is one from an earlier run."""

    @abstractmethod
    def layouts(self) -> Sequence[Layout]:
        """The live tables, in a transaction, in the order of the plan.

        Raises RebuildError for what cannot be rebuilt so.
        """

    @abstractmethod
    def layout(self, name: str) -> Layout:
        """One of them as it is now; without columns, or RebuildError: it is not there."""

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
        """True if the next transactions write to the live tables, too."""

    @abstractmethod
    def writable(self, *, on: bool) -> None:
        """True if the live tables may be written to now, where that is watched."""

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
        """The live *table* as it is written in a statement."""

    @abstractmethod
    def green(self, table: str) -> str:
        """The green *table* as it is written in a statement."""

    def quoted(self, name: str) -> str:
        """*name* as it is written in a statement."""
        return self.connection.dialect.identifier_preparer.quote_identifier(name)

    def run(self, statement: str) -> None:
        """Run *statement*, all names of which are quoted."""
        self.connection.exec_driver_sql(statement)

    def close(self) -> None:
        """Let the connection go, and others in; safe to call twice."""
        self._held.close()


#: Rows of SQLite that are in memory at once.
_PAGE: Final = 1_000
_MODULUS: Final = 1 << 128


class Digest(NamedTuple):
    """The rows of a table: how many, and the sum of their digests."""

    rows: int
    sum: int


def digest(connection: Connection, table: str, columns: Sequence[str]) -> Digest:
    """The digest of *columns* of *table*; all names are quoted already.

    Two digests are compared where they come from the same kind of database.
    """
    if not columns:
        count = connection.scalar(text(f"SELECT count(*) FROM {table}"))  # noqa: S608 - quoted
        return Digest(int(count or 0), 0)
    listed = ", ".join(columns)
    if connection.dialect.name == "postgresql":
        return _by_server(connection, table, listed)
    rows = total = 0
    found = connection.exec_driver_sql(f"SELECT {listed} FROM {table}")  # noqa: S608 - quoted
    while page := found.fetchmany(_PAGE):
        rows += len(page)
        total += sum(_of_row(tuple(row)) for row in page)
    return Digest(rows, total % _MODULUS)


def _of_row(row: tuple[object, ...]) -> int:
    """A row's digest: `repr` tells 1 from '1', 1.0 and NULL."""
    return int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:16], "big")


def _by_server(connection: Connection, table: str, listed: str) -> Digest:
    """Let PostgreSQL add up the two halves of each row's digest."""
    halves = ", ".join(
        f"coalesce(sum(('x' || substr(h, {at}, 15))::bit(60)::bigint::numeric), 0)"
        for at in (1, 17)
    )
    row = f"encode(sha256(convert_to(ROW({listed})::text, 'UTF8')), 'hex')"
    asked = f"SELECT count(*), {halves} FROM (SELECT {row} AS h FROM {table}) AS hashed"  # noqa: S608 - quoted
    rows, high, low = connection.exec_driver_sql(asked).one()
    return Digest(rows, ((int(high) << 64) + int(low)) % _MODULUS)


def copy(space: Space, layouts: Sequence[Layout]) -> None:
    """Replace the rows of the live tables by those of the green ones."""
    for one in reversed(layouts):
        space.run(f"DELETE FROM {space.live(one.name)}")  # noqa: S608 - quoted
    overriding = " OVERRIDING SYSTEM VALUE" if space.connection.dialect.name == "postgresql" else ""
    for one in layouts:
        columns = ", ".join(map(space.quoted, one.columns))
        space.run(
            f"INSERT INTO {space.live(one.name)} ({columns}){overriding}"  # noqa: S608 - quoted
            f" SELECT {columns} FROM {space.green(one.name)}"
        )
        space.renumber(one)
    for one in layouts:
        space.check(one)


def compare_tables(space: Space, layouts: Sequence[Layout]) -> Compared:
    """Compare the rows of the live tables with those of the green ones.

    What the database numbers may be numbered otherwise in an equal read model.
    """
    differing, renumbered, rows = {}, [], 0
    for one in layouts:
        live, green = _digests(space, one, one.columns)
        rows += green.rows
        if live == green:
            continue
        rest = [name for name in one.columns if name not in one.numbered]
        if one.numbered and len({*_digests(space, one, rest)}) == 1:
            renumbered += [f"{one.name}.{name}" for name in sorted(one.numbered)]
        else:
            differing[one.name] = (live.rows, green.rows)
    return Compared(differing, rows, renumbered=tuple(renumbered))


def _digests(space: Space, layout: Layout, names: Sequence[str]) -> tuple[Digest, Digest]:
    columns = [space.quoted(name) for name in names]
    live, green = (place(layout.name) for place in (space.live, space.green))
    return digest(space.connection, live, columns), digest(space.connection, green, columns)


def in_hand(plan: Plan) -> str:
    """Another rebuild is under way."""
    return (
        f"{plan.projection} is being rebuilt by another process just now: wait for it, or stop it"
        " first; a rebuild that was stopped is gone on with by the next one"
    )


def no_table(plan: Plan, name: str) -> str:
    """The table does not exist."""
    return (
        f"{plan.projection} names {name!r} in `tables`, and the database of the order has no table"
        " of that name: correct it, or, if the read model is somewhere else, leave `tables` out and"
        " rebuild it in place (--in-place)"
    )


def in_the_way(source: str, target: str, constraint: str) -> str:
    """Other tables refer to the read model."""
    return (
        f"{source} refers to {target} ({constraint}), all rows of which are replaced when a rebuild"
        f" is switched over: name {source} in `tables` too if it belongs to the read model, else"
        " make the foreign key DEFERRABLE and without an ON DELETE action, or drop it"
    )


def another(plan: Plan) -> str:
    """The space is of another plan."""
    return (
        f"a rebuild of {plan.projection} was begun for other tables, other domains or another first"
        " sequence: remove what it has made (--abandon), and begin anew"
    )


def changed(plan: Plan, table: str) -> str:
    """A live table is not the one that the space has."""
    return (
        f"{table} was changed while {plan.projection} was rebuilt for it, so columns could be lost:"
        " nothing was done to it; remove what the rebuild has made (--abandon), and begin anew"
    )


def unknown(plan: Plan, events: int) -> str:
    """So many events of the live lanes are beyond the event books."""
    return (
        f"{plan.projection} has handled or passed {events:,} events that are in no event book, so"
        " its read model would lose their effects: leave it as it is, or give them up (--force)"
    )


def unfit(plan: Plan, error: IntegrityError) -> str:
    """The live tables do not take the rows."""
    said = printable(" ".join(str(error.orig).split()))
    return (
        f"the rebuilt read model of {plan.projection} breaks a rule of its live tables: {said};"
        " nothing was switched over"
    )


def ended(plan: Plan, event: Event) -> str:
    """The projection ended the transaction that it was given."""
    return (
        f"{plan.projection} ended the transaction that it was given for {event.type}, so its"
        " effects could be there twice: do not commit or roll back its connection; fix that, and"
        " run the rebuild again, which begins anew then"
    )


def unheard(plan: Plan, away: StoreUnavailable) -> str:
    """It is not known whether a rebuild is done."""
    cure = (
        "see with --verify before you run it again" if plan.tables else
        "run it again, which ends it, or does all of it once more if it was done"
    )  # fmt: skip
    return (
        f"the database was lost while it was told to commit the rebuilt {plan.projection}, so it"
        f" may be done: {cure} ({away})"
    )


def stray(plan: Plan, table: str) -> str:
    """The projection writes to a table outside of the read model."""
    return (
        f"{plan.projection} writes to {table}, which is not in its `tables`, so a rebuild would"
        " write there twice: name it there (without its schema), and begin anew; it wrote nothing"
    )
