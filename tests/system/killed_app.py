"""A plain Celery app on our Redis transport whose workers are killed by tests.

Each begin and each end of a task is one line of a journal, which outlives the process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

import journal

TRANSPORT = "angzarr.adapters.redis.transport:RedisTransport"


def make(url: str, lease: float) -> Celery:
    """Return an app whose messages come back when a worker's lease of *lease* seconds ended."""
    app = Celery("killed_app", broker=url, broker_transport=TRANSPORT)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_publish_retry=False,
        worker_prefetch_multiplier=4,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"lease": lease},
    )
    return app


app = make(os.environ.get("KILLED_URL", "redis://"), float(os.environ.get("KILLED_LEASE", "1")))


@app.task
def work(n: int, seconds: float) -> None:
    note(n, "begun")
    time.sleep(seconds)
    note(n, "ended")


@app.task
def stand(n: int) -> None:
    """Run until the test lets it end."""
    note(n, "begun")
    while not Path(os.environ["KILLED_JOURNAL"]).with_name("go on").exists():
        time.sleep(0.02)
    note(n, "ended")


def note(n: int, what: str) -> None:
    about = {"n": n, "what": what, "worker": os.environ["KILLED_NAME"], "at": time.time()}
    journal.append(os.environ["KILLED_JOURNAL"], about)
