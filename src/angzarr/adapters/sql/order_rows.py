"""Orders of replays: rows of replay_orders."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from angzarr.adapters.sql.job_tables import replay_orders
from angzarr.analysis.replay_order import AS_IT_IS, ReplayOrder
from angzarr.analysis.transition import Change
from angzarr.dead_letters.codec import Form, decode, encode


def save_orders(connection: Connection, changes: Sequence[Change]) -> None:
    """Keep the orders of replays that begin."""
    rows = []
    for entry, _, order in changes:
        if not order:
            continue
        letter, content_type = encode(order.letter, Form.BINARY) if order.letter else (None, "")
        rows.append(
            {
                "entry_id": entry.id,
                "replay": entry.replays,
                "to_queue": order.to_queue,
                "to_handler": order.to_handler,
                "letter": letter,
                "content_type": content_type,
                "said": order.said,
            }
        )
    if rows:
        connection.execute(insert(replay_orders), rows)


def read_order(connection: Connection, entry_id: str, replay: int) -> ReplayOrder:
    """Return the order of one replay."""
    rows = replay_orders.c
    wanted = select(replay_orders).where(rows.entry_id == entry_id, rows.replay == replay)
    if (row := connection.execute(wanted).one_or_none()) is None:
        return AS_IT_IS
    letter = None if row.letter is None else decode(bytes(row.letter), row.content_type)
    return ReplayOrder(
        to_queue=row.to_queue, to_handler=row.to_handler, letter=letter, said=row.said
    )
