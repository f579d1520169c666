"""What entries of the ledger hold in payload stores, noted as it goes (spec F4).

An entry holds the body of its letter, and that of the letter before its newest edit. That one goes
is noted in the transaction that removes it, or puts another in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, Table, insert, select, update

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


def known_hold(
    known: Sequence[LetterHold], entry_id: str, wanted: PayloadHold | None
) -> PayloadHold | None:
    """The hold among *known* by which an entry holds the body of *wanted*, else *wanted*.

    It may have another name than its letter gives it: an older release filed it, or `renew`.
    """
    if wanted is None or LetterHold(entry_id, wanted) in known:
        return wanted
    mine = (one.hold for one in known if (one.entry_id, one.hold.uri) == (entry_id, wanted.uri))
    return next(mine, wanted)


def pass_edits(connection: Connection, entry_ids: Sequence[str]) -> list[LetterHold]:
    """Let newer edits take the place of those of entries; return what they held."""
    passed = _held_in(connection, replay_orders, entry_ids) if entry_ids else []
    if passed:
        older = among(connection, _orders.entry_id, {one.entry_id for one in passed})
        none = {"payload_uri": None, "payload_holder": None}
        connection.execute(update(replay_orders).where(older).values(none))
    return passed


def renew(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Give another hold to the letters in *rows*, about to be filed, whose own one is to end.

    Their queue gave them twice, and their entries were removed in between. A worker may be ending
    the old hold at this moment, or late. So the old one still ends, and the new one begins before.
    """
    holds = {hold for row in rows if (hold := hold_in(row))}
    if not holds:
        return
    same = [_released.uri, _released.holder]
    ours = [among(connection, *pair) for pair in zip(same, zip(*holds, strict=True), strict=True)]
    ending = {PayloadHold(*found) for found in connection.execute(select(*same).where(*ours))}
    renewed: list[dict[str, str]] = []
    for row in rows:
        if (old := hold_in(row)) in ending and old:
            row["payload_holder"] = f"{old.holder}+{uuid4().hex}"
            renewed.append({**old._asdict(), "next_holder": row["payload_holder"]})
    if renewed:
        connection.execute(insert(ledger_released_payloads), renewed)


def release(connection: Connection, gone: Sequence[LetterHold]) -> None:
    """Note that *gone* are to end; an entry that holds the same by another letter goes on.

    So does an entry whose hold has no day: the release before this one filed the letter.
    """
    if not gone:
        return
    held = set(holds_of(connection, {one.entry_id for one in gone}))
    ending = [one for one in dict.fromkeys(gone) if held.isdisjoint((one, _without_day(one)))]
    if ending:
        connection.execute(insert(ledger_released_payloads), [one.hold._asdict() for one in ending])


def _without_day(one: LetterHold) -> LetterHold:
    return one._replace(hold=one.hold._replace(holder=one.hold.holder.rpartition("@")[0]))


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
