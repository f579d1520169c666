"""Bare Celery with late ack and a task for each event, which calls a service."""

from __future__ import annotations

from typing import Any

from celery import Celery

from workers.call import call
from workers.environment import BROKER, FOLDER, SHARED, body
from workers.stamps import Stamps

STAMPS = Stamps(FOLDER / "stamps")

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True)


@app.task(name="bench.call")
def index(event: dict[str, Any]) -> None:
    call()
    STAMPS.set(event["number"])


def send(number: int, **options: Any) -> None:
    """Publish one event."""
    index.apply_async((body(number),), **options)
