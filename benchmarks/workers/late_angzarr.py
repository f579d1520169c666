"""Every event asks to come again after a wait of its own; each run is written down."""

from __future__ import annotations

import os
import time

from angzarr import Context, RetryLater
from workers import numbered
from workers.environment import FOLDER
from workers.journal import Journal
from workers.numbered import Numbered, app

JOURNAL = Journal(FOLDER / "journal")
#: What is waited for, in seconds. 1.11 is the worst for whole seconds: it is 2 of them.
WAITS = (0.01, 0.05, 0.1, 0.15, 0.5, 1.0, 1.11, 2.5, 8.0, 30.0)
#: Between two publications (s): few events wait at one time.
APART = float(os.environ["BENCH_APART"])


@app.handler(Numbered, domain="order", name="bench.late")
def late(event: Numbered, ctx: Context) -> None:
    JOURNAL.write(event.number)
    if ctx.attempt == 1:
        raise RetryLater(wait_of(event.number))


def wait_of(number: int) -> float:
    """Return how long an event waits; the longest are published first."""
    return WAITS[-1 - number % len(WAITS)]


def send(number: int) -> None:
    """Publish one event."""
    numbered.send(number)
    time.sleep(APART)
