"""Totals kept by a plain handler, each event in a transaction of its own.

BENCH_ORDERED in the environment says whether it takes the events of each aggregate in order.
"""

from __future__ import annotations

import os

import sqlalchemy as sa

from workers.totals import DATABASE, Booked, add, app, send_many

__all__ = ["app", "send_many"]

ENGINE = sa.create_engine(DATABASE)


@app.handler(
    Booked,
    domain="account",
    breaker="totals",
    name="bench.totals",
    ordered_by="root" if "BENCH_ORDERED" in os.environ else None,
)
def booked(event: Booked) -> None:
    with ENGINE.begin() as connection:
        add(connection, event)
