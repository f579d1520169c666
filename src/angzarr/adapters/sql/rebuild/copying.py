"""The rows of a switch-over: the green ones replace the live ones, or are compared with them."""

from __future__ import annotations

from collections.abc import Sequence

from angzarr.adapters.sql.rebuild.digest import Digest, digest
from angzarr.adapters.sql.rebuild.space import Layout, Space
from angzarr.projections.shadow_table import Compared


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
