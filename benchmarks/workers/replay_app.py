"""The app whose dead letters are replayed: one handler, whose dependency is well or ill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from angzarr import Angzarr, Context, GiveUp

FOLDER = Path(os.environ["BENCH_FOLDER"])
#: Runs, one line each, whatever process they ran in.
RUNS = FOLDER / "runs"
#: The dependency is ill from this run on; absent: it is well.
ILL_FROM = FOLDER / "ill-from"

app = Angzarr(
    "bench",
    broker=os.environ["BENCH_BROKER"],
    dlq={"backend": "amqp", "amqp_url": os.environ["BENCH_LETTERS_AT"]},
    poison_wave={"enabled": False},  # what is measured is the job's own brake
)


@app.handler("Paid", domain="pay", name="bench.pay")
def pay(event: Any, ctx: Context) -> None:
    """Note the run, and fail for good if the dependency is ill."""
    with RUNS.open("a", encoding="utf-8") as runs:
        runs.write(json.dumps([event["n"], ctx.replay]) + "\n")
    if ILL_FROM.exists() and runs_so_far() > int(ILL_FROM.read_text()):
        msg = "the bank is ill"
        raise GiveUp(msg)


def runs_so_far() -> int:
    """Return how many runs there were."""
    return RUNS.read_bytes().count(b"\n") if RUNS.exists() else 0
