"""Onslaught: workers are killed one after the other while they empty a queue; what is left?"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import redis
from workers.journal import Journal

from harness.figure import NotMeasured
from harness.site import PATIENCE, Load, Side, Site, site
from harness.worker import Worker

#: Share of the messages for the killed workers. What they hold when they are killed is out of
#: reach for a while, so that there must be enough besides; the last worker, spared, has the rest.
FOR_THE_KILLED = 0.75
#: No life is shorter than this share of an average one, so that every kill meets a busy worker.
SHORTEST = 0.2
#: Longer than any transport here needs to give back what the killed held: kombu looks every
#: second for what is older than 5 s, our lease is 8 s and judged after 4 s more.
QUIET = 20.0
#: What is not back after so long counts as lost (s).
LAST_CHANCE = 180.0
LOOK = 0.002


class Toll(NamedTuple):
    """What became of the messages: how many never ran, and how many ran more than once."""

    messages: int
    lost: int
    ran_again: int


def lives(kills: int, messages: int, seed: int) -> list[int]:
    """Return how many starts each of the killed workers is granted."""
    chance = random.Random(seed)
    weights = [chance.uniform(SHORTEST, 2 - SHORTEST) for _ in range(kills)]
    granted = FOR_THE_KILLED * messages / sum(weights)
    return [max(1, int(weight * granted)) for weight in weights]


def toll(started: Iterable[int], messages: int) -> Toll:
    """Count over the numbers of all starts, each once for each start."""
    times = Counter(started)
    lost = sum(1 for number in range(messages) if number not in times)
    return Toll(messages, lost, sum(1 for starts in times.values() if starts > 1))


def onslaught(side: Side, load: Load, *, kills: int, seed: int) -> Toll:
    """Fill the queue, kill *kills* workers while they work, let one more finish, and count.

    The broker is a Redis that nobody else uses. Raises NotMeasured if a worker ends by itself.
    """
    with site(side, load) as at, redis.Redis.from_url(load.broker) as client:
        journal = Journal(at.folder / "journal")
        at.fill()
        for life in lives(kills, load.events, seed):
            live_and_die(at, journal, life, Worker.kill)
        with at.worker() as worker:
            finish(client, load, journal, worker)
        return toll((start.number for start in journal), load.events)


def live_and_die(at: Site, journal: Journal, life: int, end: Callable[[Worker], Any]) -> Any:
    """Start a worker, *end* it once its handlers have started *life* times; return what *end* does.

    Whatever of it is left then is killed.
    """
    due, deadline = len(journal) + life, time.monotonic() + PATIENCE
    worker = at.start()
    try:
        while len(journal) < due:
            worker.check()
            if time.monotonic() > deadline:
                short = due - len(journal)
                msg = f"a worker started {short} messages short of {life}:\n{worker.log()[-2000:]}"
                raise NotMeasured(msg)
            time.sleep(LOOK)
        return end(worker)
    finally:
        worker.kill()


def finish(client: redis.Redis, load: Load, journal: Journal, worker: Worker) -> None:
    """Return once every message ran, or nothing has happened for long and nothing is held."""
    seen, changed, began = 0, time.monotonic(), time.monotonic()
    while _missing(journal, load.events) and time.monotonic() - began < LAST_CHANCE:
        worker.check()
        if len(journal) != seen:
            seen, changed = len(journal), time.monotonic()
        if time.monotonic() - changed > QUIET and not held(client, load.queue):
            return
        time.sleep(0.5)


def _missing(journal: Journal, messages: int) -> bool:
    return len({start.number for start in journal}) < messages


def held(client: Any, queue: str) -> bool:
    """Tell whether a message waits in the queue or in what any transport keeps of unacked ones."""
    if client.exists(queue):
        return True
    return any(True for _ in client.scan_iter("unacked*", _type="hash"))
