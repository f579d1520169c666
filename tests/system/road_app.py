"""The app under test: started as a real worker by the tests of this folder.

Configured by the environment as any app would be; what runs is appended to a journal file, one
JSON line a run, which is the tests' evidence.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
import zlib
from datetime import timedelta
from pathlib import Path

from celery.signals import after_setup_logger, after_setup_task_logger
from kombu import compression
from pydantic import BaseModel

import journal
from angzarr import Angzarr, CompensationAction, Context, GiveUp, Policy, RetryLater, Skip

PREFIX = os.environ.get("ROAD_PREFIX", "road")

app = Angzarr(
    "road_app",
    broker=os.environ.get("ROAD_BROKER", "memory://"),
    backend=os.environ.get("ROAD_BACKEND") or None,
    retry={
        "policies": {"quick": {"base": 0.2, "max_delay": 0.2, "max_attempts": 3, "jitter": "none"}}
    },
    dlq=json.loads(os.environ.get("ROAD_DLQ", '{"backend": "channel"}')),
)
app.conf.task_default_queue = PREFIX
app.conf.task_routes = {"road_app.routed": {"queue": f"{PREFIX}-other"}}
if "ROAD_GRACE" in os.environ:
    app.conf.worker_soft_shutdown_timeout = float(os.environ["ROAD_GRACE"])
if "ROAD_HEARTBEAT" in os.environ:
    app.conf.broker_heartbeat = float(os.environ["ROAD_HEARTBEAT"])
if os.environ.get("ROAD_QUEUES") == "classic":
    app.conf.task_default_queue_type = app.conf.task_create_missing_queue_type = "classic"
    app.conf.task_default_exchange_type = "direct"
    app.conf.task_create_missing_queue_exchange_type = "direct"
app.conf.worker_send_task_events = True
app.conf.task_send_sent_event = True
app.conf.worker_hijack_root_logger = True
app.conf.broker_transport_options = {
    **(app.conf.broker_transport_options or {}),
    **(
        {
            "polling_interval": 0.1,
            "wait_time_seconds": 1,
            "region": "us-east-1",
            "is_secure": False,
            "visibility_timeout": int(os.environ.get("ROAD_VISIBILITY", "1800")),
        }
        if app.ops.broker_url.startswith("sqs")
        else {}
    ),
}
if "ROAD_LEASE" in os.environ:  # of a Redis broker, which keeps the owner's by it too
    app.conf.broker_transport_options["lease"] = float(os.environ["ROAD_LEASE"])
if os.environ.get("ROAD_CLASSIC") == "1":
    app.conf.update(
        task_default_queue_type="classic",
        task_default_exchange_type="direct",
        task_create_missing_queue_type="classic",
        task_create_missing_queue_exchange_type="direct",
    )


if os.environ.get("ROAD_KILLER") == "1":
    # As the kernel ends a process for its memory.
    compression.register(
        zlib.compress, lambda _body: os.kill(os.getpid(), signal.SIGKILL), "application/x-killer"
    )


class Signed(logging.Formatter):
    """Begins each line with the process that said it, for tests that count them."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.process} {self._inner.format(record)}"


def sign(logger: logging.Logger, **_signal: object) -> None:
    for handler in logger.handlers:
        if not isinstance(handler.formatter, Signed):
            handler.setFormatter(Signed(handler.formatter or logging.Formatter()))


if os.environ.get("ROAD_SIGNED") == "1":
    after_setup_logger.connect(sign)
    after_setup_task_logger.connect(sign)


def note(what: str, **more: object) -> None:
    about = {"what": what, "pid": os.getpid(), "worker": os.getpgrp(), "at": time.time()}
    journal.append(os.environ["ROAD_JOURNAL"], {**about, **more})


class Thing(BaseModel):
    n: int
    fate: str = "fine"
    seconds: float = 0.0
    times: int = 1
    #: What makes a message large, and its letter larger.
    filler: str = ""


def _starts(n: int) -> int:
    lines = journal.records(os.environ["ROAD_JOURNAL"])
    return sum(line["what"] == "handle" and line["n"] == n for line in lines)


UNDO = "road_app.undo" if os.environ.get("ROAD_UNDO") == "1" else None


@app.handler(Thing, domain="thing", policy="quick", compensation=UNDO)
def handle(event: Thing, ctx: Context) -> int:
    note("handle", n=event.n, attempt=ctx.attempt, replay=ctx.replay)
    if event.fate == "flaky" and ctx.attempt < 3:
        raise ConnectionResetError("flaky")
    if event.fate == "down" and ctx.replay == 0:
        raise ConnectionResetError("down")
    if event.fate == "give up":
        raise GiveUp("never")
    if event.fate == "replayed" and ctx.replay == 0:
        raise GiveUp("not yet")
    if event.fate == "skip":
        raise Skip("not ours")
    if event.fate == "login":
        note("login", n=event.n, filler=event.filler, replay=ctx.replay)
        if ctx.replay == 0:
            raise GiveUp(f"{event.filler} is refused: {event.model_dump()}")
    if event.fate == "long" and _starts(event.n) <= event.times:
        time.sleep(event.seconds)
    if event.fate == "slow":
        time.sleep(event.seconds)
    if event.fate == "gated":
        while not Path(os.environ["ROAD_JOURNAL"]).with_name("gate").exists():
            time.sleep(0.05)
    if event.fate == "later" and ctx.attempt == 1:
        raise RetryLater(event.seconds)
    note("handled", n=event.n, attempt=ctx.attempt)
    return event.n


if os.environ.get("ROAD_ASYNC", "1") == "1":

    @app.handler(Thing, domain="thing", policy="quick", compensation=UNDO)
    async def handle_async(event: Thing) -> int:
        await asyncio.sleep(0)
        note("handle_async", n=event.n)
        return event.n


if UNDO:

    @app.handler(Thing, domain="thing", policy="quick", name=UNDO)
    def undo(event: Thing, ctx: Context) -> None:
        about = {"id": ctx.event.id, "because": ctx.event.causation_id}
        note("undo", n=event.n, filler=event.filler, **about)


class Stepped(BaseModel):
    n: int
    #: How often its step fails, in all runs.
    fails: int
    policy: str = "event_handler"


def _step(event: Stepped, attempt: int) -> int:
    note("step", n=event.n, attempt=attempt)
    lines = journal.records(os.environ["ROAD_JOURNAL"])
    tries = sum(line["what"] == "step" for line in lines)
    if tries <= event.fails:
        raise ConnectionResetError("the step failed")
    return tries


@app.handler(Stepped, domain="thing", policy="quick")
def stepped(event: Stepped, ctx: Context) -> None:
    tries = ctx.retry(_step, event, ctx.attempt, policy=event.policy)
    note("stepped", n=event.n, attempt=ctx.attempt, tries=tries)


class Order(BaseModel):
    """What each of its runs does: the steps that it finishes, and the one after which it hangs."""

    n: int
    runs: list[list[str]]
    hangs: str = ""


@app.undo
def unstep(data: dict[str, object]) -> None:
    """Undo a step; one whose name is in a file beside the journal hangs."""
    note("undoing", **data)
    hanging = Path(os.environ["ROAD_JOURNAL"]).with_name("hanging")
    if hanging.exists() and hanging.read_text() == data["step"]:
        time.sleep(60)
    note("undone", **data)


if os.environ.get("ROAD_ASYNC", "1") == "1":

    @app.undo(name="road_app.unstep_async")
    async def unstep_async(data: dict[str, object]) -> None:
        await asyncio.to_thread(unstep, data)

else:  # gevent runs no coroutines
    unstep_async = unstep


def _finish(steps: list[str], event: Order, ctx: Context) -> None:
    for step in steps:
        execute = unstep_async if step == "ship" else unstep
        data = {"n": event.n, "step": step}
        note("finished", **data)
        ctx.register_compensation(CompensationAction(step, execute, data))
        note("registered", **data)
        if step == event.hangs:
            time.sleep(60)


@app.handler(Order, domain="thing", policy="quick")
def order(event: Order, ctx: Context) -> None:
    """Finish the steps of this run, then give up."""
    lines = journal.records(os.environ["ROAD_JOURNAL"])
    run = sum(line["what"] == "order" for line in lines)
    note("order", n=event.n)
    _finish(event.runs[run], event, ctx)
    raise GiveUp("no such address")


class Batch(BaseModel):
    n: int


@app.handler(Batch, domain=f"{PREFIX}-batch", queue=f"{PREFIX}-batch")
def take(event: Batch) -> None:
    """Fail for good as long as a file beside the journal says so."""
    ill = Path(os.environ["ROAD_JOURNAL"]).with_name("ill").exists()
    note("take", n=event.n, ill=ill)
    if ill:
        raise GiveUp("the schema changed")


class Call(BaseModel):
    n: int


@app.handler(Call, domain=f"{PREFIX}-dep", policy="quick", breaker="dep", queue=f"{PREFIX}-dep")
def call(event: Call, ctx: Context) -> None:
    """Call a dependency that files beside the journal make ill, or mute."""
    folder = Path(os.environ["ROAD_JOURNAL"]).parent
    ill, mute = (folder / "ill").exists(), (folder / "mute").exists()
    note("call", n=event.n, attempt=ctx.attempt, ill=ill, mute=mute)
    if mute:
        time.sleep(60)
    if ill:
        raise ConnectionRefusedError("the dependency is away")


@app.task
def add(a: int, b: int) -> int:
    note("add", args=[a, b])
    return a + b


@app.task
def echo(given: object) -> object:
    return given


@app.task
def record(given: object) -> None:
    note("record", given=given)


@app.task
def total(numbers: list[int]) -> int:
    note("total", args=numbers)
    return sum(numbers)


@app.task
def routed() -> None:
    note("routed")


@app.task(bind=True, max_retries=3)
def asks(self, n: int) -> int:
    note("asks", retries=self.request.retries)
    if self.request.retries < 2:
        self.retry(countdown=0.2)
    return n


@app.task(bind=True)
def edits(self, given: str, countdown: float) -> None:
    note("edits", given=given)
    if self.request.retries == 0:
        self.retry(args=[f"{given} again", countdown], countdown=countdown)


@app.task
def refuses() -> None:
    raise GiveUp("never")


@app.task(autoretry_for=(KeyError,), retry_kwargs={"max_retries": 2, "countdown": 0.1})
def auto() -> None:
    note("auto")
    raise KeyError("always")


@app.task(bind=True)
def replaces(self, n: int) -> int:
    note("replaces")
    return self.replace(add.s(n, 1))


#: Two attempts, half a second apart.
SOON = Policy(
    name="two",
    base=timedelta(seconds=0.5),
    max_delay=timedelta(seconds=0.5),
    max_attempts=2,
    jitter="none",
)

if os.environ.get("ROAD_LIMITS") == "1":

    @app.task(soft_time_limit=1, policy=SOON)
    def soft() -> None:
        note("soft")
        time.sleep(30)

    @app.task(time_limit=1, policy=SOON, bind=True, track_started=True)
    def hard(self) -> None:
        note("hard", attempt=self.request.retries + 1)
        time.sleep(30)

    class SlowOrder(Order):
        """One whose handler is killed for its time."""

    @app.handler(SlowOrder, domain="thing", policy=SOON, time_limit=2)
    def slow_order(event: SlowOrder, ctx: Context) -> None:
        note("slow_order", attempt=ctx.attempt)
        _finish(event.runs[0], event, ctx)


@app.task
def dies(how: str = "exit", after: float = 0.0) -> None:
    """Take its process along, in one of the ways that there are."""
    note("dies", how=how)
    time.sleep(after)
    if how == "signal":  # as the kernel does it to whoever has used up the memory
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sys.exit":
        sys.exit(3)
    os._exit(1)


@app.task
def answers() -> object:
    """Return what no JSON can say."""
    note("answers")
    return object()


@app.task
def greedy() -> None:
    """Take more memory than its process may have from now on: what ``ulimit -v`` does."""
    note("greedy")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + 2**29
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    bytearray(2**31)


@app.task
def long(seconds: float) -> None:
    note("long", seconds=seconds)
    time.sleep(seconds)
    note("long done", seconds=seconds)
