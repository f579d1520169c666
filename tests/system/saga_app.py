"""An app whose saga's commands are all rejected, and whose source fails until it is mended.

Mended it is by a file of the name in ``SAGA_MENDED``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

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
    rejected,
)
from angzarr.sagas import CompensationContext

PREFIX = os.environ["ANGZARR_PREFIX"]
#: Letters of other tests are in queues of other domains.
PURSE, TABLE = f"{PREFIX}.purse", f"{PREFIX}.table"

app = Angzarr(
    "saga_app",
    broker=os.environ["SAGA_BROKER"],
    books=os.environ["SAGA_BOOKS"],
    dlq=json.loads(os.environ["SAGA_DLQ"]),
    retry={
        "policies": {"quick": {"base": 0.1, "max_delay": 0.1, "max_attempts": 2, "jitter": "none"}}
    },
)
app.conf.task_default_queue = PREFIX


class Reserve(BaseModel):
    amount: int


class Reserved(BaseModel):
    amount: int


class Released(BaseModel):
    amount: int


class Seat(BaseModel):
    amount: int


class Seated(BaseModel):
    amount: int


class Funds(BaseModel):
    reserved: int = 0


@app.aggregate(PURSE, policy="quick")
class Purse(Aggregate[Funds]):
    @handles(Reserve)
    def reserve(self, command: Reserve) -> Reserved:
        return Reserved(amount=command.amount)

    @rejected(TABLE, Seat)
    def not_seated(self, refused: CompensationContext) -> Released:
        if not Path(os.environ["SAGA_MENDED"]).exists():
            msg = f"no rate for {refused.command_as(Seat).amount}"
            raise LookupError(msg)
        return Released(amount=self.state.reserved)

    @applies(Reserved)
    def on_reserved(self, event: Reserved) -> None:
        self.state.reserved += event.amount

    @applies(Released)
    def on_released(self, event: Released) -> None:
        self.state.reserved -= event.amount


@app.aggregate(TABLE)
class Table(Aggregate[Funds]):
    @handles(Seat)
    def seat(self, _command: Seat) -> Seated:
        raise CommandRejectedError("the table is full")

    @applies(Seated)
    def on_seated(self, _event: Seated) -> None:
        raise AssertionError


@app.saga("seating", source=PURSE)
class Seating(Saga):
    @reacts_to(Reserved)
    def ask(self, event: Reserved) -> Send:
        return Send(Seat(amount=event.amount), domain=TABLE, root="t-1")
