"""Orders of replays: rows of replay_orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from angzarr.adapters.sql.job_tables import replay_orders
from angzarr.analysis.change import Change
from angzarr.analysis.entry import Entry
from angzarr.analysis.newer_words import read_word
from angzarr.analysis.replay_order import AS_IT_IS, Expectation, ReplayOrder
from angzarr.dead_letters.bounds import WIDEST
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import DeadLetter


def save_orders(connection: Connection, changes: Sequence[Change]) -> None:
    """Keep the orders of replays that begin."""
    rows = [_row(entry, order) for entry, _, order in changes if order]
    if rows:
        connection.execute(insert(replay_orders), rows)


def read_orders(
    connection: Connection, replays: Mapping[str, int]
) -> dict[str, tuple[ReplayOrder, DeadLetter | None]]:
    """Return by entry the order of its last replay, and the letter before the newest edit.

    *replays* is the number of the last replay, by entry.
    """
    found: dict[str, list[Row[Any]]] = {entry_id: [] for entry_id in replays}
    rows = replay_orders.c
    wanted = select(replay_orders).where(rows.entry_id.in_(sorted(replays)))
    for row in connection.execute(wanted.order_by(rows.replay.desc())):
        found[row.entry_id].append(row)
    return {one: _last_of(found[one], replay) for one, replay in replays.items()}


def order_sizes(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return by entry how many bytes the letters of its orders are, where it has orders."""
    rows = replay_orders.c
    both = (func.coalesce(func.length(one), 0) for one in (rows.letter, rows.before))
    wanted = select(rows.entry_id, func.sum(sum(both))).group_by(rows.entry_id)
    found = connection.execute(wanted.where(rows.entry_id.in_(ids)))
    return {entry_id: int(size) for entry_id, size in found}


def _last_of(rows: Sequence[Row[Any]], replay: int) -> tuple[ReplayOrder, DeadLetter | None]:
    last = _order(rows[0]) if rows and rows[0].replay == replay else AS_IT_IS
    edited = next((row for row in rows if row.before is not None), None)
    return last, edited and _order(edited).before


def _order(row: Row[Any]) -> ReplayOrder:
    return ReplayOrder(
        to_queue=row.to_queue,
        to_handler=row.to_handler,
        sequence=read_word(Expectation, row.sequence or Expectation.AS_IS),
        **letters_of(row),
    )


def _row(entry: Entry, order: ReplayOrder) -> dict[str, Any]:
    return letters_row(order) | {
        "entry_id": entry.id,
        "replay": entry.replays,
        "to_queue": order.to_queue,
        "to_handler": order.to_handler,
        "sequence": None if order.sequence is Expectation.AS_IS else order.sequence.value,
    }


def letters_row(order: ReplayOrder) -> dict[str, Any]:
    """Return the letters of *order*, and what was changed, as columns."""
    letter, content_type = _written(order.letter)
    before, _ = _written(order.before)
    return {"letter": letter, "before": before, "content_type": content_type, "said": order.said}


def letters_of(row: Row[Any]) -> dict[str, Any]:
    """Return such columns as fields of a `ReplayOrder`."""
    return {
        "letter": _read(row.letter, row.content_type),
        "before": _read(row.before, row.content_type),
        "said": row.said,
    }


def _written(letter: DeadLetter | None) -> tuple[bytes | None, str]:
    return (None, "") if letter is None else encode(letter, Form.BINARY)


def _read(body: bytes | None, content_type: str) -> DeadLetter | None:
    return None if body is None else decode(bytes(body), content_type, WIDEST)
