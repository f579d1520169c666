"""The app under test: stock that is counted, a command that merges by hand, and a saga.

Whoever counts 13 sets off a command that is rejected, and nothing here undoes the count.
"""

from __future__ import annotations

import json
import os

from pydantic import BaseModel

from angzarr import (
    Aggregate,
    Angzarr,
    CommandRejectedError,
    Saga,
    Send,
    applies,
    handles,
    reacts_to,
)
from angzarr.aggregates import MergeStrategy, merge_strategy

PREFIX = os.environ.get("ROAD_PREFIX", "merge")
SHELF, SHOP = f"{PREFIX}-shelf", f"{PREFIX}-shop"

app = Angzarr(
    "merge_app",
    broker=os.environ.get("ROAD_BROKER", "memory://"),
    dlq=json.loads(os.environ.get("ROAD_DLQ", '{"backend": "channel"}')),
)
app.conf.task_default_queue = PREFIX


class Count(BaseModel):
    pieces: int


class Counted(BaseModel):
    pieces: int


class Sell(BaseModel):
    pieces: int


class Stock(BaseModel):
    pieces: int = 0


@app.aggregate(SHELF)
class Shelf(Aggregate[Stock]):
    @handles(Count)
    @merge_strategy(MergeStrategy.MANUAL)
    def count(self, command: Count) -> Counted:
        return Counted(pieces=command.pieces)

    @applies(Counted)
    def on_counted(self, event: Counted) -> None:
        self.state.pieces = event.pieces


@app.aggregate(SHOP)
class Shop(Aggregate[Stock]):
    @handles(Sell)
    def sell(self, command: Sell) -> Counted:
        msg = f"nobody buys {command.pieces}"
        raise CommandRejectedError(msg)

    @applies(Counted)
    def on_counted(self, event: Counted) -> None:
        self.state.pieces = event.pieces


@app.saga("selling", source=SHELF)
class Selling(Saga):
    @reacts_to(Counted)
    def sell(self, event: Counted) -> Send | None:
        return Send(Sell(pieces=13), domain=SHOP, root="main") if event.pieces == 13 else None
