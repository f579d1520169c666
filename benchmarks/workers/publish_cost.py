"""Compare what a publish costs its process: `python -m workers.publish_cost one|many 20 200`.

Prints JSON: the processor time and the time of one event, in µs, of each round of both sides.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from workers import noop_angzarr, noop_celery
from workers.environment import QUEUE, body

#: The two declare their queues with other arguments on RabbitMQ.
BARE_QUEUE = f"{QUEUE}-bare"


def one_by_one(events: int) -> None:
    """Publish each event by a call of its own."""
    for number in range(events):
        noop_angzarr.send(number)


def together(events: int) -> None:
    """Publish all events by one call."""
    noop_angzarr.app.publish_many(noop_angzarr.OrderPlaced(**body(n)) for n in range(events))


def bare(events: int) -> None:
    """Send each task by Celery's ``apply_async``."""
    for number in range(events):
        noop_celery.send(number)


def cost(publish: Callable[[int], None], events: int) -> tuple[float, float]:
    """The processor time and the time of one event, in µs."""
    cpu, wall = process_time(), perf_counter()
    publish(events)
    return (process_time() - cpu) * 1e6 / events, (perf_counter() - wall) * 1e6 / events


def waiting(app: Any, queue: str) -> int:
    """The messages in *queue*."""
    with app.connection_for_read() as connection:
        return int(connection.default_channel.queue_declare(queue, passive=True).message_count)


def main(how: str, rounds: int, events: int) -> None:
    """Warm both sides up with one round, then let them take turns."""
    noop_celery.app.conf.task_default_queue = BARE_QUEUE
    ours = {"one": one_by_one, "many": together}[how]
    cost(ours, events), cost(bare, events)
    told = [(cost(ours, events), cost(bare, events)) for _ in range(rounds)]
    sent = (rounds + 1) * events
    found = waiting(noop_angzarr.app, QUEUE), waiting(noop_celery.app, BARE_QUEUE)
    if found != (sent, sent):
        sys.exit(f"{found} messages are in the queues, {sent} were sent to each")
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
