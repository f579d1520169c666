"""Print messages per second: `python -m workers.publish_rate loop|batch 100 10000`."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

from workers.noop_celery import app, send

BATCH = 100


def loop(events: int) -> None:
    """Publish one after the other."""
    for number in range(events):
        send(number)


def batch(events: int) -> None:
    """Publish in batches of BATCH on one producer; the end of the block sends the rest."""
    producer: Any
    with app.producer_pool.acquire(block=True) as producer, producer.batch(max_size=BATCH):
        for number in range(events):
            send(number, producer=producer)


def main(how: str, warm_up: int, events: int) -> None:
    """Publish *warm_up* messages, then time *events* more."""
    publish = {"loop": loop, "batch": batch}[how]
    publish(warm_up)
    began = perf_counter()
    publish(events)
    print(events / (perf_counter() - began))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
