"""What every peer's handler does, and what the harness tells it. Standard library only.

A handler stamps the moments of its start and its end in mapped files: about a microsecond, the
same for all. The end of a run is known from these stamps alone, never from a peer's own counters.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from workers.stamps import Stamps

BROKER = os.environ["BENCH_BROKER"]
FOLDER = Path(os.environ["BENCH_FOLDER"])
STAMPS = Stamps(FOLDER / "stamps")
DONE = Stamps(FOLDER / "done")
#: Which events have failed once; shared by all processes, since a retry may run in another one.
FAILED = Stamps(FOLDER / "failed")
#: Seconds that a handler waits, and seconds of processor time that it uses.
WAIT = float(os.environ["BENCH_WAIT"])
SPIN = float(os.environ["BENCH_SPIN"])
#: Every so manieth event fails when it runs first; 0: none.
FAILS_EVERY = int(os.environ["BENCH_FAILS_EVERY"])
#: Runs of one event at most, more than any needs.
ATTEMPTS = 3


class Unlucky(Exception):
    """An event fails for the first time; the peer's own retry runs it again."""


def body(number: int) -> dict[str, Any]:
    """The event that every peer sends."""
    return {"number": number, "order_id": f"o-{number}", "total": "9.90", "currency": "EUR"}


def run(event: dict[str, Any]) -> None:
    """Do the work in a thread or a process of the caller's; raises Unlucky."""
    _begin(event["number"])
    if WAIT:
        time.sleep(WAIT)
    _end(event["number"])


async def run_async(event: dict[str, Any]) -> None:
    """Do the same work in a coroutine."""
    _begin(event["number"])
    if WAIT:
        await asyncio.sleep(WAIT)
    _end(event["number"])


def _begin(number: int) -> None:
    if FAILS_EVERY and number % FAILS_EVERY == 0 and not FAILED.has(number):
        FAILED.set(number)
        raise Unlucky(number)
    STAMPS.set(number)


def _end(number: int) -> None:
    """Use SPIN seconds of this thread's processor time: waiting for the GIL does not count."""
    end = time.thread_time() + SPIN
    while time.thread_time() < end:
        pass
    DONE.set(number)
