"""Bare Celery with late ack: tasks with a countdown of an hour, which its worker holds."""

from __future__ import annotations

from typing import Any

from celery import Celery

from workers.environment import BROKER, SHARED, body

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True)
# Else RabbitMQ delays it natively, and there is nothing to compare.
app.conf.update(task_default_queue_type="classic", task_default_exchange_type="direct")


@app.task(name="bench.delayed")
def delayed(event: dict[str, Any]) -> None:
    """Never runs: its time does not come."""


def send(number: int) -> None:
    """Publish one event."""
    delayed.apply_async((body(number),), countdown=3600)
