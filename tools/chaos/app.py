"""The app under test: handlers that do to themselves what their event's data says.

Configured by the environment, as any app would be. `CHAOS_FOLDER` has the history's file,
`CHAOS_WORKER` names this worker; `CHAOS_MUTATION` breaks angzarr in this process, on purpose. Where
`CHAOS_ASYNC` says so, most handlers are async.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path

from celery import signals
from pydantic import BaseModel
from sqlalchemy import text

from angzarr import Angzarr, Context, GiveUp, Postpone, Projection, Skip, handles
from angzarr.delivery import Batch, BatchContext, BatchResult
from chaos import hardships, mutations
from chaos.fates import (
    BATCHED,
    GUARDED,
    LETHAL,
    LETHAL_QUEUE,
    LIMITED,
    MAIN,
    MOST_ATTEMPTS,
    ORDERED,
    PAIR,
    QUEUE,
    STEPS,
    TIME_LIMIT,
    VISIBILITY,
)
from chaos.history import DYING, Journal, Pair

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
#: Whether handlers that may be either are async in this worker.
ASYNC = bool(os.environ.get("CHAOS_ASYNC"))
JOURNAL = Journal(FOLDER / "history", os.environ.get("CHAOS_WORKER", ""))
#: Short waits, so that an event's whole life fits into a short run.
POLICY = {"base": 0.3, "max_delay": 1.5, "max_attempts": MOST_ATTEMPTS}

#: The dependency is ill for the first seconds of each period.
PERIOD, ILL = 12.0, 4.0
BREAKER = {
    "min_calls": 4, "failures_in_a_row": 3, "open_for": 1.5, "probe_lease": 3, "ramp_up": 1,
    "successes_to_close": 1,
}  # fmt: skip

ADD = text("INSERT INTO seen (root, sequence) VALUES (:root, :sequence)")

app = Angzarr(
    "chaos",
    retry={"default": "chaos", "policies": {"chaos": POLICY}},
    flow={"breakers": {"sick": BREAKER}},
)
app.conf.task_default_queue = QUEUE
if app.ops.broker_url.startswith("sqs"):
    app.conf.broker_transport_options = {
        "region": "us-east-1", "is_secure": False, "polling_interval": 0.2,
        "wait_time_seconds": 1, "visibility_timeout": VISIBILITY,
    }  # fmt: skip


class Trial(BaseModel):
    id: str
    fate: str
    failures: int = 0
    seconds: float = 0.0
    padding: str = ""


class PairTrial(Trial):
    """Handled by two handlers."""


class GuardedTrial(Trial):
    """Calls a dependency that is ill from time to time."""


class LethalTrial(Trial):
    """Ends its process."""


class LimitedTrial(Trial):
    """Runs into its time limit."""


class BatchedTrial(Trial):
    """Handled together with others."""


class OrderedTrial(Trial):
    """One of the events of an aggregate."""


def first_time(event: Trial, where: str = "") -> bool:
    """Tell whether this event was never begun before, in any process."""
    try:
        os.close(os.open(FOLDER / f"first-{where}{event.id}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


async def pause(seconds: float) -> None:
    """Wait, as a handler of this worker's colour does."""
    if ASYNC:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - it is run as a function


def either(handler):
    """*handler* as it is where handlers are async, elsewhere as a function."""
    if ASYNC:
        return handler

    @wraps(handler)
    def run(*args, **kwargs):
        try:
            handler(*args, **kwargs).send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a handler that is run as a function has waited")

    return run


def run_of(handler: str, ctx: Context):
    told = ctx.delivery
    return JOURNAL.run(
        Pair(handler, ctx.event.id),
        attempt=ctx.attempt, replay=ctx.replay, hop=told.position.hop,
    )  # fmt: skip


@app.handler(Trial, domain="trial", name=MAIN)
@either
async def main(event: Trial, ctx: Context) -> str:
    with run_of(MAIN, ctx):
        await undergo(event, ctx)
        return event.id


async def undergo(event: Trial, ctx: Context) -> None:
    await pause(event.seconds if event.fate != "fickle" else 0)
    match event.fate:
        case "transient" | "exhausted" | "large" if ctx.attempt <= event.failures:
            raise ConnectionResetError("transient")
        case "permanent" | "oversize":
            raise GiveUp("never")
        case "bug":
            raise ZeroDivisionError("a bug")
        case "skip":
            raise Skip("not ours")
        case "postponed" if ctx.delivery.position.hop == 0:
            raise Postpone(1.0)
        case "fickle" if first_time(event):
            await pause(event.seconds)
            raise GiveUp("in the first run")


@app.handler(PairTrial, domain="trial", name=PAIR[0])
def pair_sync(event: PairTrial, ctx: Context) -> None:
    with run_of(PAIR[0], ctx):
        time.sleep(event.seconds)


@app.handler(PairTrial, domain="trial", name=PAIR[1])
async def pair_async(event: PairTrial, ctx: Context) -> None:
    with run_of(PAIR[1], ctx):
        await asyncio.sleep(event.seconds)


@app.handler(GuardedTrial, domain="trial", name=GUARDED, breaker="sick")
@either
async def guarded(event: GuardedTrial, ctx: Context) -> None:
    with run_of(GUARDED, ctx):
        await pause(event.seconds)
        if time.time() % PERIOD < ILL:
            raise ConnectionRefusedError("the dependency is ill")


@app.handler(OrderedTrial, domain="lane", name=ORDERED, ordered_by="root")
def ordered(event: OrderedTrial, ctx: Context) -> None:
    with run_of(ORDERED, ctx):
        time.sleep(event.seconds)
        if ctx.attempt <= event.failures:
            raise ConnectionResetError("transient")


@app.handler(BatchedTrial, domain="trial", name=BATCHED, batch=Batch(size=4, wait=0.2))
def batched(events: list[BatchedTrial], ctx: BatchContext) -> BatchResult:
    errors = {
        n: ConnectionResetError("transient")
        for n, (event, one) in enumerate(zip(events, ctx.contexts, strict=True))
        if one.attempt <= event.failures
    }
    runs = [run_of(BATCHED, one) for one in ctx.contexts]
    for run in runs:
        run.__enter__()
    time.sleep(max(event.seconds for event in events))
    for n, run in enumerate(runs):
        end(run, errors.get(n))
    return BatchResult(errors)


def end(run: AbstractContextManager[str], error: Exception | None) -> None:
    """Write down how the run of one event of a batch ended."""
    try:
        run.__exit__(type(error) if error else None, error, None)
    except ConnectionResetError:
        return


@app.projection("seen", domains="lane", retry_policy="chaos")
class Seen(Projection):
    tables = ("seen",)

    @handles(OrderedTrial)
    def take(self, event: OrderedTrial) -> None:
        row = {"root": self.event.root, "sequence": self.event.sequence}
        self.connection.execute(ADD, row)
        time.sleep(event.seconds)
        if event.failures and first_time(event, "seen-"):
            raise ConnectionResetError("transient")


@app.handler(LethalTrial, domain="lethal", name=LETHAL, queue=LETHAL_QUEUE)
def lethal(event: LethalTrial, ctx: Context) -> None:
    with run_of(LETHAL, ctx) as run:
        time.sleep(event.seconds)
        if event.fate == "poison" or first_time(event):
            JOURNAL.write(DYING, run=run)
            if event.fate == "exits":
                os._exit(1)
            os.kill(os.getpid(), signal.SIGKILL)


@app.handler(LimitedTrial, domain="lethal", name=LIMITED, queue=LETHAL_QUEUE, time_limit=TIME_LIMIT)
def limited(event: LimitedTrial, ctx: Context) -> None:
    with run_of(LIMITED, ctx) as run:
        if event.fate == "endless" or first_time(event):
            JOURNAL.write(DYING, run=run)
            time.sleep(60)


@app.task(name=STEPS[0], bind=True, domain="trial")
@either
async def first_step(self, value: str) -> str:
    return step(self, value)


@app.task(name=STEPS[1], bind=True, domain="trial")
@either
async def second_step(self, value: str) -> str:
    return step(self, value)


def step(task, value: str) -> str:
    with JOURNAL.run(Pair(task.name, task.request.id), attempt=1, replay=0, hop=0):
        return value


if name := os.environ.get("CHAOS_WORKER"):
    JOURNAL.open()
    # Not read from its log, which a fault may break.
    signals.worker_ready.connect(lambda **_: (FOLDER / f"{name}.ready").touch(), weak=False)
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # a worker that hangs says where
hardships.heed(os.environ)
mutations.apply(os.environ.get("CHAOS_MUTATION", ""), FOLDER)
