"""Bare Celery with late ack and a handler that does nothing."""

from __future__ import annotations

from typing import Any

from celery import Celery

from workers.environment import BROKER, SHARED, STAMPS, body

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True)


@app.task(name="bench.noop")
def noop(event: dict[str, Any]) -> None:
    STAMPS.set(event["number"])


def send(number: int) -> None:
    """Publish one event."""
    noop.delay(body(number))
