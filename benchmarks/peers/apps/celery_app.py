"""Bare Celery with late acknowledgement, on kombu's transports."""

from __future__ import annotations

from typing import Any

from celery import Celery
from workers.environment import BROKER, SHARED

from peers.apps import work

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True, task_reject_on_worker_lost=True)


@app.task(
    autoretry_for=(work.Unlucky,), default_retry_delay=0, max_retries=work.ATTEMPTS - 1,
    name="bench.handle",
)  # fmt: skip
def handle(event: dict[str, Any]) -> None:
    work.run(event)


def send(number: int) -> None:
    """Publish one event."""
    handle.delay(work.body(number))
