"""What entries of the ledger hold in payload stores, noted as it goes (spec F4).

An entry holds the body of its letter, and that of the letter before its newest edit. That one goes
is noted in the transaction that removes it, or puts another in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Table, delete, insert, select, update

from angzarr.adapters.sql.engine.statements import among
from angzarr.adapters.sql.ledger.schema import ledger_released_payloads, replay_orders
from angzarr.adapters.sql.ledger.tables import ledger_letters
from angzarr.payloads.holders import PayloadHold

_released: Final = ledger_released_payloads.c
_orders: Final = replay_orders.c


class LetterHold(NamedTuple):
    """The hold of one letter of an entry."""

    entry_id: str
    hold: PayloadHold


def hold_in(row: Mapping[str, Any]) -> PayloadHold | None:
    """What *row* of a letter or an edit holds."""
    return PayloadHold(row["payload_uri"], row["payload_holder"]) if row["payload_uri"] else None


def holds_of(connection: Connection, entry_ids: Iterable[str]) -> list[LetterHold]:
    """All that entries hold; what an entry holds twice is there twice."""
    ids = list(entry_ids)
    return [
        *_held_in(connection, ledger_letters, ids),
        *_held_in(connection, replay_orders, ids),
    ]


def holds_of_letters(connection: Connection, entry_ids: Iterable[str]) -> list[LetterHold]:
    """What the letters of entries hold."""
    return _held_in(connection, ledger_letters, list(entry_ids))


def pass_edits(connection: Connection, entry_ids: Sequence[str]) -> list[LetterHold]:
    """Let newer edits take the place of those of entries; return what they held."""
    passed = _held_in(connection, replay_orders, entry_ids) if entry_ids else []
    if passed:
        older = among(connection, _orders.entry_id, {one.entry_id for one in passed})
        none = {"payload_uri": None, "payload_holder": None}
        connection.execute(update(replay_orders).where(older).values(none))
    return passed


def keep(connection: Connection, holds: Sequence[PayloadHold]) -> None:
    """Forget that *holds* were to end: their letters are filed, perhaps once more.

    So is a letter that its queue gives twice, and whose entry was removed in between.
    """
    if not holds:
        return
    same = [_released.uri, _released.holder]
    ours = [among(connection, *pair) for pair in zip(same, zip(*holds, strict=True), strict=True)]
    connection.execute(delete(ledger_released_payloads).where(*ours))


def release(connection: Connection, gone: Sequence[LetterHold]) -> None:
    """Note that *gone* are to end; an entry that holds the same by another letter goes on."""
    if not gone:
        return
    held = set(holds_of(connection, {one.entry_id for one in gone}))
    rows = [one.hold._asdict() for one in dict.fromkeys(gone) if one not in held]
    if rows:
        connection.execute(insert(ledger_released_payloads), rows)


def _held_in(connection: Connection, table: Table, entry_ids: Sequence[str]) -> list[LetterHold]:
    columns = table.c
    held = select(columns.entry_id, columns.payload_uri, columns.payload_holder)
    mine = held.where(
        among(connection, columns.entry_id, entry_ids), columns.payload_uri.is_not(None)
    )
    return [
        LetterHold(entry_id, PayloadHold(uri, holder))
        for entry_id, uri, holder in connection.execute(mine)
    ]
