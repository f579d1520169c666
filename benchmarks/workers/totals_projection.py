"""Totals kept by a projection: in order, each event's effects exactly once."""

from __future__ import annotations

from angzarr import Projection, handles
from workers.totals import Booked, add, app, send_many

__all__ = ["app", "send_many"]


@app.projection("totals", domains="account", breaker="totals")
class Totals(Projection):
    tables = ("totals",)

    @handles(Booked)
    def booked(self, event: Booked) -> None:
        add(self.connection, event)
