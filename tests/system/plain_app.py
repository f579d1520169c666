"""A Celery app as anybody writes one, on our Redis transport: run as real workers by tests.

What runs is appended to a journal, one JSON line a run, which is the tests' evidence. By
PLAIN_KIND the same tasks belong to Celery's app or to an `Angzarr`; an empty PLAIN_TRANSPORT gives
kombu's own transport, to see what a test says of it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery, signals

import journal

PREFIX = os.environ.get("PLAIN_PREFIX", "plain")
URL = os.environ.get("PLAIN_REDIS", "redis://")
FOLDER = Path(os.environ.get("PLAIN_FOLDER", "."))
TRANSPORT = os.environ.get("PLAIN_TRANSPORT", "angzarr.adapters.redis.transport:RedisTransport")


def _make() -> Celery:
    if os.environ.get("PLAIN_KIND") != "angzarr":
        return Celery("plain_app", broker=URL, backend=URL, broker_transport=TRANSPORT or None)
    from angzarr import Angzarr

    kombus = {} if TRANSPORT else {"redis_transport": "kombu"}
    letters = {"backend": "amqp", "amqp_url": os.environ["PLAIN_LETTERS"]}
    return Angzarr("plain_app", broker=URL, backend=URL, store=URL, dlq=letters, **kombus)


app = _make()
app.conf.update(
    task_default_queue=PREFIX,
    task_track_started=True,
    task_send_sent_event=True,
    worker_send_task_events=True,
    worker_prefetch_multiplier=int(os.environ.get("PLAIN_PREFETCH", "2")),
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        # What kombu's transport gives back after this time although its worker lives.
        "visibility_timeout": 3,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "queue_order_strategy": "priority",
        "priority_steps": [0, 3, 6, 9],
    },
)


@signals.celeryd_init.connect
def tell_stacks(**_signal: object) -> None:
    """Write where each thread is, on SIGUSR2; children inherit it."""
    faulthandler.register(signal.SIGUSR2, sys.__stderr__)


@signals.worker_process_shutdown.connect
def linger(**_signal: object) -> None:
    """Take as long to end as somebody wants, who makes a file to say so."""
    while (FOLDER / "linger").exists():
        time.sleep(0.02)


def note(task: Any, **more: object) -> None:
    request = task.request
    run = {"what": task.name.partition(".")[2], "id": request.id, "retries": request.retries}
    journal.append(FOLDER / "journal", {**run, "at": time.time(), **more})


@app.task(shared=False, bind=True)
def add(self, a: int, b: int) -> int:
    note(self)
    return a + b


@app.task(shared=False, bind=True)
def total(self, numbers: list[int]) -> int:
    note(self)
    return sum(numbers)


@app.task(shared=False, bind=True)
def tell(self, what: Any = None) -> None:
    note(self, said=what)


@app.task(shared=False, bind=True)
def limited(self) -> None:
    note(self)


@app.task(shared=False, bind=True, max_retries=3)
def flaky(self, failures: int) -> int:
    note(self)
    if self.request.retries < failures:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(shared=False, bind=True, autoretry_for=(KeyError,), max_retries=2, retry_backoff=False,
          default_retry_delay=0.1)  # fmt: skip
def hopeless(self) -> None:
    note(self)
    raise KeyError("always")


@app.task(shared=False, bind=True)
def gate(self, name: str) -> None:
    """Wait until somebody opens the gate, by making a file of its name."""
    note(self, gate=name)
    while not (FOLDER / name).exists():
        time.sleep(0.02)
    note_end(self)


@app.task(shared=False, bind=True)
def nap(self, seconds: float) -> None:
    note(self)
    time.sleep(seconds)
    note_end(self)


def note_end(task: Any) -> None:
    (FOLDER / f"ended-{task.request.id}").touch()
