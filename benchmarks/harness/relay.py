"""Relay: a worker is killed with a message in a running handler; when does another start it?"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from workers.journal import Journal, Start

from harness.figure import NotMeasured
from harness.site import Load, Side, Site, site
from harness.worker import Worker

#: Two workers, of which one is killed.
FLEET = 2
#: The handler is killed so long after its start at most: no kill meets the same phase of anything.
LONGEST_RUN = 2.0
#: A start follows its publication at once.
STARTS_WITHIN = 30.0


class NeverBack(NotMeasured):
    """A killed worker's message was not started again in time."""


def relay(side: Side, load: Load, *, kills: int, seed: int, patience: float) -> list[float]:
    """Return for each kill the seconds from SIGKILL to the second start of the message.

    Both workers are up before the message is published; the killed one is replaced afterwards.
    Raises NeverBack where *patience* seconds were not enough.
    """
    chance = random.Random(seed)
    with site(side, load) as at, _fleet(at) as workers:
        journal = Journal(at.folder / "journal")
        took = []
        for number in range(kills):
            at.run("workers.publish", side.app, "1", str(number))
            holder = workers.pop(start_of(journal, number, 0, STARTS_WITHIN).worker)
            time.sleep(chance.uniform(0, LONGEST_RUN))
            killed = holder.kill()
            took.append(start_of(journal, number, 1, patience).moment - killed)
            if number < kills - 1:
                _add(at, workers)
    return took


def start_of(journal: Journal, number: int, which: int, patience: float) -> Start:
    """Return the message's start with this index, as soon as there is one."""
    deadline = time.monotonic() + patience
    while len(starts := journal.starts(number)) <= which:
        if time.monotonic() > deadline:
            msg = f"message {number} had {len(starts)} starts after {patience:g} s"
            raise NeverBack(msg)
        time.sleep(0.01)
    return starts[which]


@contextmanager
def _fleet(at: Site) -> Iterator[dict[int, Worker]]:
    """Lend a fleet by pid, ready; whoever is in it at the end is stopped."""
    workers: dict[int, Worker] = {}
    try:
        while len(workers) < FLEET:
            _add(at, workers)
        yield workers
    finally:
        for worker in workers.values():
            worker.kill()


def _add(at: Site, workers: dict[int, Worker]) -> None:
    worker = at.start()
    workers[worker.pid] = worker
    worker.wait_ready()
