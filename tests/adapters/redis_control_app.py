"""A plain Celery app, started as a real worker by the tests of remote control.

On the broker and the transport that the environment names; what ran is pushed to a Redis list.
"""

from __future__ import annotations

import os

import redis
from celery import Celery

BROKER = os.environ["CONTROL_BROKER"]
NAME = os.environ["CONTROL_NAME"]

app = Celery(NAME, broker=BROKER)
app.conf.update(
    broker_transport=os.environ["CONTROL_TRANSPORT"],
    # Two transports, two ways to say the same: `global_keyprefix` keeps the fanout apart.
    broker_transport_options={"global_keyprefix": f"{NAME}:"},
    broker_connection_retry_on_startup=True,
    task_default_queue="tasks",
    task_acks_late=True,
    worker_hijack_root_logger=False,
)


@app.task(name="note")
def note(what: str) -> None:
    with redis.Redis.from_url(BROKER) as client:
        client.rpush(f"{NAME}-ran", what)
