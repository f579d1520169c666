"""The app of the tests of pinned configurations: prices change while a bill is under way."""

from __future__ import annotations

import os
import signal
from contextlib import closing

from pydantic import BaseModel
from road_app import app, note

from angzarr import Context, GiveUp
from angzarr.wiring.configuration import editor_of


class Bill(BaseModel):
    n: int
    #: "fail" kills its process in the first run, and gives up in the second.
    fate: str = "fine"
    padding: str = ""


def put(prices: int) -> None:
    """Put prices, as an operator does."""
    with closing(app.ops.open_configurations()) as store:
        editor_of(store).put("pricing", str(prices), author="test")


def _first_time(n: int) -> bool:
    """True once in all processes."""
    try:
        os.close(os.open(f"{os.environ['ROAD_JOURNAL']}.{n}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@app.handler(Bill, domain="thing", name="priced_app.bill", policy="quick")
def bill(event: Bill, ctx: Context) -> None:
    prices = ctx.config("pricing")
    note("bill", n=event.n, prices=prices, replay=ctx.replay)
    if event.fate == "fail" and ctx.replay == 0:
        if _first_time(event.n):
            put(prices + 1)
            os.kill(os.getpid(), signal.SIGKILL)
        raise GiveUp("no")
