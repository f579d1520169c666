"""Digests of read models: equal rows, in whatever order, have equal digests; in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

#: Rows of SQLite that are in memory at once.
_PAGE: Final = 1_000
_MODULUS: Final = 1 << 128


class Digest(NamedTuple):
    """The rows of a table: how many, and the sum of their digests."""

    rows: int
    sum: int


def digest(connection: Connection, table: str, columns: Sequence[str]) -> Digest:
    """Return the digest of *columns* of *table*; all names are quoted already.

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
    """Return a row's digest: `repr` tells 1 from '1', 1.0 and NULL."""
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
