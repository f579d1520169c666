"""Farewells: workers are asked to stop one after the other while they empty a queue."""

from __future__ import annotations

from typing import NamedTuple

import redis
from workers.journal import Journal

from harness.onslaught import Toll, finish, live_and_die, lives, toll
from harness.site import Load, Side, site

#: Who has not ended by then is counted with it.
PATIENCE = 60.0


class Farewells(NamedTuple):
    """How long each worker took to end (s), and what became of the messages."""

    seconds: list[float]
    toll: Toll


def farewells(side: Side, load: Load, *, stops: int, seed: int) -> Farewells:
    """Fill the queue, stop *stops* workers while they work, let one more finish, and count.

    The broker is a Redis that nobody else uses. Raises NotMeasured if a worker ends by itself.
    """
    with site(side, load) as at, redis.Redis.from_url(load.broker) as client:
        journal = Journal(at.folder / "journal")
        at.fill()
        seconds = [
            live_and_die(at, journal, life, lambda worker: worker.asked_to_stop(PATIENCE))
            for life in lives(stops, load.events, seed)
        ]
        with at.worker() as worker:
            finish(client, load, journal, worker)
        return Farewells(seconds, toll((start.number for start in journal), load.events))
