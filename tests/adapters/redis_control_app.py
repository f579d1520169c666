"""A plain Celery app, started as a real worker by the tests of remote control and of failovers.

On the broker and the transport that the environment names; what ran is pushed to a Redis list.
"""

from __future__ import annotations

import json
import os
import time

import redis
from celery import Celery

BROKER = os.environ["CONTROL_BROKER"]
#: The Redis server with the list of what ran.
JOURNAL = os.environ.get("CONTROL_JOURNAL", BROKER)
NAME = os.environ["CONTROL_NAME"]

app = Celery(NAME, broker=BROKER)
app.conf.update(
    broker_transport=os.environ["CONTROL_TRANSPORT"],
    broker_transport_options={
        "global_keyprefix": f"{NAME}:",
        **json.loads(os.environ.get("CONTROL_OPTIONS", "{}")),
    },
    broker_connection_retry_on_startup=True,
    task_default_queue="tasks",
    task_acks_late=True,
    worker_hijack_root_logger=False,
)


@app.task(name="note")
def note(what: str, seconds: float = 0) -> None:
    time.sleep(seconds)
    with redis.Redis.from_url(JOURNAL) as client:
        client.rpush(f"{NAME}-ran", what)
