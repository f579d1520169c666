"""Drain: how fast a worker empties a queue that was filled before it started."""

from __future__ import annotations

import time
from dataclasses import dataclass

from workers.stamps import Stamps

from harness.figure import NotMeasured
from harness.pairs import middle_rate
from harness.site import PATIENCE, Load, Side, Site, site
from harness.worker import Worker


class DrainFailed(NotMeasured):
    """Not every event was handled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Events per second over the middle 98 %, and what the worker wrote to its log."""

    rate: float
    log: str


def drain(side: Side, load: Load) -> Drained:
    """Fill the queue, start a worker, wait until every event ran, and stop it.

    The moments are those at which handlers start. Raises NotMeasured unless every event ran.
    """
    with site(side, load) as at:
        stamps = filled(at)
        with at.worker() as worker:
            moments = handled(stamps, at, worker)
        return Drained(rate=middle_rate(moments), log=worker.log())


def filled(at: Site) -> Stamps:
    """Fill the site's queue and return where its handlers will write their moments."""
    stamps = Stamps.create(at.folder / "stamps", at.load.events)
    at.fill()
    return stamps


def handled(stamps: Stamps, at: Site, worker: Worker) -> list[float]:
    """Return the moments of all events once every handler has started."""
    events, deadline = at.load.events, time.monotonic() + PATIENCE
    while len(moments := stamps.seconds()) < events:
        worker.check()
        if time.monotonic() > deadline:
            msg = f"{len(moments)} of {events} events were handled:\n{worker.log()[-2000:]}"
            raise DrainFailed(msg)
        time.sleep(0.25)
    return moments
