"""The app under test, with what harms its worker: by remote control, from within.

A stall is found after seconds instead of a minute; settings refuse so little.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery.signals import worker_process_init, worker_ready
from celery.worker.control import control_command
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from road_app import Batch, Thing, app, handle  # noqa: F401 - the site's

from angzarr.adapters.redis import fetcher

health = app.settings.health.model_copy(
    update={"stalled_after": timedelta(seconds=float(os.environ["HEALTH_STALLED"]))}
)
app.ops.context.substitute(settings=app.settings.model_copy(update={"health": health}))


def own_sdk() -> None:
    """Set up an SDK, as an app may."""
    set_meter_provider(MeterProvider())


if os.environ.get("HEALTH_SDK") == "module":
    own_sdk()
elif os.environ.get("HEALTH_SDK") == "child":
    worker_process_init.connect(lambda **_signal: own_sdk(), weak=False)


@control_command()
def block(_state: Any, seconds: float) -> None:
    """Hold up the loop."""
    time.sleep(seconds)


@control_command()
def deafen(state: Any) -> None:
    """Let the fetcher ask no more, as a lost callback would, and count as silent sooner."""
    fetcher.LONGEST_SILENCE = fetcher.SAFETY_LOOK
    state.consumer.task_consumer.channel.fetcher.turn = lambda: None


@control_command()
def unpoll(state: Any) -> None:
    """Let the transport lose the chain of polls."""
    state.consumer.task_consumer.channel._schedule_queue = lambda _queue: None


@worker_process_init.connect
def hang(**_signal: Any) -> None:
    """Let a child never be up, where the test says so."""
    while Path(os.environ["ROAD_JOURNAL"]).with_name("hang").exists():
        time.sleep(0.1)


@control_command()
def kill_children(state: Any) -> None:
    """Kill all children; others take their place."""
    for process in list(state.consumer.pool._pool._pool):
        os.kill(process.pid, signal.SIGKILL)


@control_command()
def unfork(state: Any) -> None:
    """Let no child be forked any more, and kill those that are there."""
    pool = state.consumer.pool._pool

    def fail(*_: Any) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    pool._create_worker_process = fail
    kill_children(state)


@app.task(name="health_app.unpoll")
def unpoll_by_task() -> None:
    """Do as `unpoll`, in a pool of threads: SQS carries no remote control."""
    unpoll(SimpleNamespace(consumer=SEEN[0]))


#: The consumer of this worker.
SEEN: list[Any] = []


@worker_ready.connect
def note_consumer(sender: Any, **_signal: Any) -> None:
    """Remember who consumes."""
    SEEN[:] = [sender]
