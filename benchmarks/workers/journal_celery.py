"""Bare Celery with late ack; its handlers write down which message they were started with."""

from __future__ import annotations

from celery import Celery

from workers.environment import BROKER, FOLDER, SHARED
from workers.hold import hold
from workers.journal import Journal

JOURNAL = Journal(FOLDER / "journal")

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True)


@app.task(name="bench.journal")
def journal(number: int) -> None:
    hold(JOURNAL, number)


def send(number: int) -> None:
    """Publish one message."""
    journal.delay(number)
