"""The app of the tests of coroutines: its tasks wait for each other, for a gate, or too long."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import structlog
from billiard.exceptions import SoftTimeLimitExceeded
from celery import current_task
from road_app import PREFIX, Thing, app, note  # noqa: F401 - the site's

import journal
from angzarr.delivery import Batch

if stalled := os.environ.get("ROAD_STALLED"):
    health = app.settings.health.model_copy(
        update={"stalled_after": timedelta(seconds=float(stalled))}
    )
    app.ops.context.substitute(settings=app.settings.model_copy(update={"health": health}))

#: Who has come to each meeting of this process, and whether all have.
come: dict[str, set[int]] = defaultdict(set)
complete: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


def _times(what: str, n: int) -> int:
    lines = journal.records(os.environ["ROAD_JOURNAL"])
    return sum(line["what"] == what and line["n"] == n for line in lines)


async def _meet(where: str, n: int, number: int) -> None:
    """Return once *number* have come."""
    come[where].add(n)
    if len(come[where]) == number:
        complete[where].set()
    await complete[where].wait()


async def _gate() -> None:
    while not Path(os.environ["ROAD_JOURNAL"]).with_name("gate").exists():  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.05)


@app.task
async def meet(n: int, number: int) -> None:
    note("come", n=n)
    await _meet("meet", n, number)
    note("met", n=n)


@app.task
async def mark(n: int) -> int:
    note("mark", n=n)
    return n


@app.task
async def wait_for_gate(n: int) -> None:
    note("wait", n=n)
    await _gate()
    note("waited", n=n)


@app.task
async def clean_up(n: int) -> None:
    note("begun", n=n)
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        note("cleaned up", n=n)


@app.task
def meet_in_threads(n: int, number: int) -> None:
    with lock:
        come["threads"].add(n)
    while len(come["threads"]) < number:
        time.sleep(0.02)
    note("met", n=n, thread=threading.current_thread().name)


lock = threading.Lock()


@app.task(bind=True)
async def tell(self, n: int, number: int) -> None:
    """Note what this run sees of itself before, amid and after others."""
    structlog.contextvars.bind_contextvars(number=n)
    seen = [_seen(self)]
    await _meet("tell", n, number)
    seen.append(_seen(self))
    await asyncio.gather(_add(self, seen), asyncio.sleep(0))
    await _meet("told", n, number)
    seen.append(_seen(self))
    note("told", n=n, seen=seen)


async def _add(task, seen: list) -> None:
    await asyncio.sleep(0)
    seen.append(_seen(task))


def _seen(task) -> list:
    bound = structlog.contextvars.get_contextvars()["number"]
    return [current_task.request.args[0], task.request.args[0], current_task.name, bound]


@app.handler(Thing, domain="thing", name="coroutines_app.gather", batch=Batch(size=5, wait=5.0))
async def gather(events: list[Thing]) -> None:
    await asyncio.sleep(0)
    note("gathered", numbers=[event.n for event in events])


@app.task(soft_time_limit=0.5)
async def wait_softly(n: int) -> None:
    try:
        await asyncio.sleep(600)
    except SoftTimeLimitExceeded:
        await asyncio.sleep(0)  # it may clean up
        note("soft", n=n)


@app.task(time_limit=1, policy="quick")
async def hang(n: int) -> None:
    note("hang", n=n)
    if _times("hang", n) == 1:
        try:
            await asyncio.sleep(600)
        finally:
            note("cancelled", n=n)
    note("hung", n=n)


@app.task(time_limit=1, policy="quick")
async def ignore(n: int) -> None:
    note("ignore", n=n)
    while _times("ignore", n) == 1:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            note("ignored", n=n)
    note("ended", n=n)


@app.task(time_limit=1, policy="quick")
async def block(n: int) -> None:
    note("block", n=n)
    if _times("block", n) == 1:
        time.sleep(600)  # noqa: ASYNC251 - that is what is wrong with it
    note("blocked", n=n)


@app.task
async def block_briefly(n: int) -> None:
    note("blocking", n=n)
    while not Path(os.environ["ROAD_JOURNAL"]).with_name("gate").exists():
        time.sleep(0.02)  # noqa: ASYNC251 - that is what is wrong with it
    note("unblocked", n=n)


@app.task
async def block_for_good(n: int) -> None:
    note("blocking for good", n=n)
    if _times("blocking for good", n) == 1:
        time.sleep(600)  # noqa: ASYNC251 - that is what is wrong with it
    note("unblocked", n=n)


@app.task
async def add_up(numbers: list[int]) -> int:
    note("added", parent=current_task.request.parent_id)
    return sum(numbers)


async def _exit() -> None:
    raise SystemExit(1)


@app.task
async def end_the_loop(n: int) -> None:
    note("ending", n=n)
    if _times("ending", n) == 1:
        asyncio.create_task(_exit())  # noqa: RUF006 - it is over at once
        await asyncio.sleep(600)
    note("loop ended", n=n)


@app.task(bind=True)
async def publish_another(self, n: int) -> None:
    """Publish an event that belongs to the flow of this one."""
    event = await app.apublish({"n": n}, type="coroutines.another", id=f"another-{n}")
    note("published", n=n, is_its_cause=event.causation_id == self.request.id)


@app.handler("coroutines.another", name="coroutines_app.take_another")
async def take_another(event: dict[str, int]) -> None:
    note("taken", n=event["n"])
