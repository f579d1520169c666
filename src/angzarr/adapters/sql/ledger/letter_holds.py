"""What letters of the ledger hold in payload stores, noted as they go (spec F4).

It is noted in the transaction that removes a letter, or puts another in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, insert, select

from angzarr.adapters.sql.engine.statements import among
from angzarr.adapters.sql.ledger.schema import ledger_released_payloads
from angzarr.adapters.sql.ledger.tables import ledger_letters
from angzarr.payloads.holders import PayloadHold

_letters: Final = ledger_letters.c


class LetterHold(NamedTuple):
    """The hold of one letter of an entry."""

    entry_id: str
    hold: PayloadHold


def holds_of(connection: Connection, entry_ids: Iterable[str]) -> list[LetterHold]:
    """What the letters of entries hold."""
    held = select(_letters.entry_id, _letters.payload_uri, _letters.payload_holder)
    mine = held.where(
        among(connection, _letters.entry_id, entry_ids), _letters.payload_uri.is_not(None)
    )
    return [
        LetterHold(entry_id, PayloadHold(uri, holder))
        for entry_id, uri, holder in connection.execute(mine)
    ]


def release(connection: Connection, gone: Sequence[LetterHold]) -> None:
    """Note that *gone* are to end; an entry that holds the same by another letter goes on."""
    if not gone:
        return
    held = set(holds_of(connection, [one.entry_id for one in gone]))
    rows = [one.hold._asdict() for one in gone if one not in held]
    if rows:
        connection.execute(insert(ledger_released_payloads), rows)
