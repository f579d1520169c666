"""RQ, which has Redis alone."""

from __future__ import annotations

from typing import Any

from redis import Redis
from rq import Queue, Retry

from peers.apps import work

#: Its worker's command reads this.
REDIS_URL = work.BROKER
queue = Queue(connection=Redis.from_url(work.BROKER))
#: Jobs that one call publishes.
BATCH = 500


def handle(event: dict[str, Any]) -> None:
    work.run(event)


def send(number: int) -> None:
    """Publish one event; nothing is kept of its result."""
    retry = Retry(max=work.ATTEMPTS - 1)
    queue.enqueue(handle, work.body(number), result_ttl=0, retry=retry)


def send_many(numbers: range) -> None:
    """Publish many events."""
    retry = Retry(max=work.ATTEMPTS - 1)
    for start in range(numbers.start, numbers.stop, BATCH):
        queue.enqueue_many(
            Queue.prepare_data(handle, (work.body(number),), result_ttl=0, retry=retry)
            for number in range(start, min(start + BATCH, numbers.stop))
        )
