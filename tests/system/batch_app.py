"""The app of the tests of batch handlers: they note each batch, kill their process, and fail."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from road_app import app, note

from angzarr import GiveUp
from angzarr.delivery import Batch, BatchContext, BatchResult

SIZE = 10
WAIT = float(os.environ.get("BATCH_WAIT", "0.3"))


def _first_time(n: int) -> bool:
    """True once in all processes."""
    try:
        os.close(os.open(f"{os.environ['ROAD_JOURNAL']}.{n}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _take(parts: list[dict[str, Any]]) -> BatchResult:
    note("batch", ns=[part["n"] for part in parts])
    errors: dict[int, Exception] = {}
    for position, part in enumerate(parts):
        match part.get("does"):
            case "kill" if _first_time(part["n"]):
                os.kill(os.getpid(), signal.SIGKILL)
            case "always_kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang" if _first_time(part["n"]):
                time.sleep(600)
            case "wait":
                note("waiting", n=part["n"])
                while not os.path.exists(f"{os.environ['ROAD_JOURNAL']}.go"):  # noqa: PTH110
                    time.sleep(0.05)
            case "fail" if _first_time(part["n"]):
                errors[position] = ConnectionError("down")
            case "give_up":
                errors[position] = GiveUp("never")
            case "raise":
                raise ValueError(part["n"])
    for position, part in enumerate(parts):
        if position not in errors:
            note("part", n=part["n"])
    return BatchResult(errors)


@app.handler("Part", domain="thing", policy="quick", batch=Batch(size=SIZE, wait=WAIT))
def take(parts: list[dict[str, Any]], ctx: BatchContext) -> BatchResult:
    assert [event.data for event in ctx.events] == parts
    return _take(parts)


# Only where a pool can run them.
if os.environ.get("BATCH_ASYNC") == "1":

    @app.handler("AsyncPart", domain="thing", policy="quick", batch=Batch(size=SIZE, wait=WAIT))
    async def take_async(parts: list[dict[str, Any]]) -> BatchResult:
        return _take(parts)


if os.environ.get("BATCH_LIMITED") == "1":

    @app.handler(
        "LimitedPart",
        domain="thing",
        policy="quick",
        batch=Batch(size=SIZE, wait=WAIT),
        time_limit=1.5,
    )
    def take_within(parts: list[dict[str, Any]]) -> BatchResult:
        return _take(parts)

    @app.handler(
        "SoftPart",
        domain="thing",
        policy="quick",
        batch=Batch(size=SIZE, wait=WAIT),
        soft_time_limit=1.5,
    )
    def take_softly(parts: list[dict[str, Any]]) -> BatchResult:
        return _take(parts)
