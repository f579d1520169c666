"""Bare Celery with late ack and a handler that does nothing, on the transport it is told."""

from __future__ import annotations

from typing import Any

from celery import Celery

from workers.environment import BROKER, FOLDER, SHARED, body
from workers.stamps import Stamps

STAMPS = Stamps(FOLDER / "stamps")

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True)


@app.task(name="bench.noop")
def noop(event: dict[str, Any]) -> None:
    STAMPS.set(event["number"])


def send(number: int, **options: Any) -> None:
    """Publish one event."""
    noop.apply_async((body(number),), **options)
