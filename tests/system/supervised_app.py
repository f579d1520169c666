"""The app of the tests of `angzarr worker`: its tasks wait, hang, eat memory and end processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

from billiard.exceptions import SoftTimeLimitExceeded
from road_app import PREFIX, Thing, app, note  # noqa: F401 - the site's

import journal

if (broken := Path(os.environ["ROAD_JOURNAL"]).with_name("broken")).exists():
    raise RuntimeError(broken.read_text())

#: Keeps what `eat` has eaten.
eaten: list[bytes] = []
#: Which load of the app this is.
LOADED = len(
    [line for line in journal.records(os.environ["ROAD_JOURNAL"]) if line["what"] == "loaded"]
)
if os.environ.get("SUPERVISED_SAYS_LOADED") == "1":
    note("loaded")


def _times(what: str, n: int) -> int:
    lines = journal.records(os.environ["ROAD_JOURNAL"])
    return sum(line["what"] == what and line["n"] == n for line in lines)


@app.task
def mark(n: int) -> None:
    note("mark", n=n, loaded=LOADED)


@app.task(soft_time_limit=0.5)
def sleep_softly(n: int) -> None:
    try:
        time.sleep(600)
    except SoftTimeLimitExceeded:
        note("soft", n=n)


@app.task(soft_time_limit=0.5)
async def wait_softly(n: int) -> None:
    try:
        await asyncio.sleep(600)
    except (SoftTimeLimitExceeded, asyncio.CancelledError) as error:
        note("soft", n=n, error=type(error).__name__)
        raise


@app.task(time_limit=1, policy="quick")
def hang(n: int) -> None:
    note("hang", n=n)
    if _times("hang", n) == 1:
        time.sleep(600)
    note("hung", n=n)


@app.task(time_limit=1)
def stick(n: int) -> None:
    """Hold the interpreter in C, where no other thread of this process can run."""
    note("stick", n=n)
    if _times("stick", n) == 1:
        ctypes.PyDLL(None).sleep(600)
    note("stuck", n=n)


@app.task
def wait_for_gate(n: int) -> None:
    note("wait", n=n)
    while not Path(os.environ["ROAD_JOURNAL"]).with_name("gate").exists():
        time.sleep(0.02)
    note("waited", n=n)


@app.task
def die(n: int) -> None:
    note("die", n=n)
    if _times("die", n) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note("died", n=n)


@app.task
def eat(n: int, mebibytes: int) -> None:
    eaten.append(b"x" * (mebibytes << 20))
    note("eat", n=n)


@app.task
def ring() -> None:
    note("ring")


if os.environ.get("SUPERVISED_BEAT") == "1":
    app.conf.beat_schedule = {"ring": {"task": "supervised_app.ring", "schedule": 1.0}}
    app.conf.beat_max_loop_interval = 1
